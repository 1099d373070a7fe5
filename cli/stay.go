package cli

import (
	"context"

	"github.com/spf13/cobra"
)

// stayUp waits for Ctrl-C or SIGTERM, and then takes a rack down, if another command has not done so: `up` can
// be process 1 of a container, or a service.
func stayUp(cmd *cobra.Command, name string) error {
	<-cmd.Context().Done()
	cmd.SetContext(context.WithoutCancel(cmd.Context())) // the signal ends the wait, and not the way down
	return downOne(cmd, name)
}
