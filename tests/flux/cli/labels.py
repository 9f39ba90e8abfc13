"""For tests: every `flux run` labels its output, and tells its ranks the number of their node."""

from flux.cli.plugin import CLIPlugin


class Labels(CLIPlugin):
    def preinit(self, args):
        if self.prog == "run":
            args.label_io = True
            args.env = (args.env or []) + ["TEST_NODE={{node.id}}"]
