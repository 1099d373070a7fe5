package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

// stayUp waits for Ctrl-C or SIGTERM, and then takes a rack down, if another command has not done so: `up` can
// be process 1 of a container, or a service. err is why the rack is not as it should be; then it does not wait, and
// returns err.
func stayUp(cmd *cobra.Command, name string, err error) error {
	if err == nil {
		<-cmd.Context().Done()
	}
	cmd.SetContext(context.WithoutCancel(cmd.Context())) // the signal ends the wait, and not the way down
	return errors.Join(err, downOne(cmd, name, false))
}
