import sys

from asterism.cli import main

sys.exit(main())
