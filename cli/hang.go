package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/rack"
)

func hangCmd() *cobra.Command {
	var app bool
	cmd := &cobra.Command{
		Use:               "hang HOST [--app] | hang switch",
		Short:             "Stop every process of a host, only its programs, or the switch, until `rdmalab resume`",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: arguments(nodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return hurt(cmd, func(r *rack.Rack) (rack.Action, string, error) {
				if app {
					n, err := hangApps(cmd.Context(), r, args[0])
					return rack.ActionResumeApps, fmt.Sprintf("the services and tests of the daemon and %d programs on %s hang", n, args[0]), err
				}
				return rack.ActionResume, args[0] + " hangs", r.Hang(cmd.Context(), args[0])
			}, args[0])
		},
	}
	cmd.Flags().BoolVar(&app, "app", false, "stop only programs, services and running tests")
	forFlag(cmd, "resume what hangs after this time, up to 24h, like 2s (default: it hangs until rdmalab resume)")
	return cmd
}

// hangApps stops the programs on a host, and the services and tests of the host's daemon. It
// returns how many programs it has stopped. After an error, nothing hangs.
func hangApps(ctx context.Context, r *rack.Rack, host string) (int, error) {
	if r.Spec.IsSwitch(host) {
		return 0, badUse("the switch hangs as a whole: `rdmalab hang %s`", host)
	}
	err := askNICs(ctx, r, host, hostd.PathHangApp)
	if said := (*control.Error)(nil); errors.As(err, &said) {
		return 0, err // the daemon has refused
	}
	n := 0
	if err == nil {
		n, err = r.Apps(host).Hang(ctx)
	}
	if err != nil {
		err = errors.Join(err, undoHang(context.WithoutCancel(ctx), r, host))
	}
	return n, err
}

// undoHang resumes the services and tests of a host's daemon, if they hang, after a hang has failed
// or was interrupted.
func undoHang(ctx context.Context, r *rack.Rack, host string) error {
	err := askNICs(ctx, r, host, hostd.PathResumeApp)
	if said := (*control.Error)(nil); err == nil || errors.As(err, &said) && said.Status == http.StatusConflict {
		return nil
	}
	return fmt.Errorf("the services on %s may hang: use `rdmalab resume %s --app`: %w", host, host, err)
}

// resumeApps undoes hangApps. It resumes the programs even if the services and tests of the daemon
// no longer hang, because a crash has ended them.
func resumeApps(ctx context.Context, r *rack.Rack, host string) error {
	n, err := r.Apps(host).Resume(ctx)
	if err != nil {
		return err
	}
	err = askNICs(ctx, r, host, hostd.PathResumeApp)
	if said := (*control.Error)(nil); n > 0 && errors.As(err, &said) && said.Status == http.StatusConflict {
		return nil
	}
	return err
}

func resumeCmd() *cobra.Command {
	var app bool
	cmd := &cobra.Command{
		Use:               "resume HOST [--app] | resume switch",
		Short:             "Continue the processes of a host or of the switch that `rdmalab hang` stopped",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: arguments(nodeNames),
		RunE: onRack(func(cmd *cobra.Command, args []string, r *rack.Rack) error {
			if !app {
				if err := r.Resume(cmd.Context(), args[0]); err != nil {
					return err
				}
				return say(cmd, "%s goes on", args[0])
			}
			if r.Spec.IsSwitch(args[0]) {
				return badUse("the switch hangs as a whole: `rdmalab resume %s`", args[0])
			}
			if err := errors.Join(r.Cancel(cmd.Context(), rack.ActionResumeApps, args[0]), resumeApps(cmd.Context(), r, args[0])); err != nil {
				return err
			}
			return say(cmd, "the programs of %s go on", args[0])
		}),
	}
	cmd.Flags().BoolVar(&app, "app", false, "continue only programs, services and running tests")
	return cmd
}

func restartCmd() *cobra.Command {
	var app, nic bool
	cmd := &cobra.Command{
		Use:               "restart HOST [--app | --nic] | restart switch",
		Short:             "Start a host or the switch again in any state, or a host's crashed NIC or services",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: arguments(nodeNames),
		RunE: onRack(func(cmd *cobra.Command, args []string, r *rack.Rack) error {
			action := rack.ActionRestart
			switch {
			case nic:
				action = rack.ActionNIC
			case app:
				action = rack.ActionApps
			}
			if err := r.Cancel(cmd.Context(), action, args[0]); err != nil {
				return err
			}
			if err := doers()[action](cmd.Context(), r, args[0]); err != nil {
				return err
			}
			return say(cmd, "%s is up", args[0])
		}),
	}
	cmd.Flags().BoolVar(&nic, "nic", false, "start only the NIC again, and the services that ended with it")
	cmd.Flags().BoolVar(&app, "app", false, "start only the services of the host's daemon again")
	cmd.MarkFlagsMutuallyExclusive("app", "nic")
	return cmd
}
