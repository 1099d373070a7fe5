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
		Use:   "hang HOST [--app] | hang switch",
		Short: "Stop every process of a host, only its programs, or the switch, until `rdmalab resume`",
		Long: "hang stops every process of a host until `rdmalab resume`. The daemon of the host, which is the host's NIC, stops,\n" +
			"too. So the NIC sends and answers nothing. But the link keeps its carrier, and the kernel still answers ping.\n" +
			"Memory and connections stay as they are. hang prints what it has stopped. It fails if the host hangs already or has\n" +
			"crashed.\n\n" +
			"The clock does not stop. Timers of the host that expire in the meantime take effect as soon as the host is resumed.\n\n" +
			"`hang HOST --app` stops the programs on the host, and the services and tests that run in its daemon, as if the\n" +
			"processors of the machine hung. The NIC goes on: it executes the requests of peers and the programs of work requests\n" +
			"that are in its queues. A program that is started later on the host runs. `rdmalab resume HOST --app` ends the hang.\n" +
			"During the hang, `rdmalab crash HOST --app` kills programs, services and tests, and `rdmalab crash HOST --nic` ends\n" +
			"only the services and tests: the programs still hang.\n\n" +
			"`hang switch` stops the switch: it forwards nothing.",
		Example: "  rdmalab hang ms0 --for 2s\n" +
			"  rdmalab hang md0 --app\n" +
			"  rdmalab hang switch --for 1s\n" +
			"  rdmalab hang ms0 && rdmalab resume ms0",
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
		Use:   "resume HOST [--app] | resume switch",
		Short: "Continue the processes of a host or of the switch that `rdmalab hang` stopped",
		Long: "resume continues every process where `rdmalab hang` stopped it. The host's memory and queue pairs are as they\n" +
			"were. But a peer whose retries have run out in the meantime has ended its side of the connection.\n\n" +
			"With --app it continues the services and tests that `rdmalab hang --app` stopped, and all stopped programs.\n\n" +
			"If --for was given to `rdmalab hang`, resume also cancels that timer. resume prints what runs again. It fails if\n" +
			"nothing hangs. To bring back a host or a switch that has crashed, use `rdmalab restart`.",
		Example: "  rdmalab hang ms0 && rdmalab resume ms0\n" +
			"  rdmalab resume switch",
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
		Use:   "restart HOST [--app | --nic] | restart switch",
		Short: "Start a host or the switch again in any state, or a host's crashed NIC or services",
		Long: "restart ends all processes of a host or of the switch, whether they run or hang, and starts the host or the switch\n" +
			"again with the same names and addresses. A restarted host has empty memory and no connections. Clients must connect\n" +
			"again, and a store must be started again by its command, like `rdmalab clover start`.\n\n" +
			"After `rdmalab crash HOST --nic`, `restart HOST --nic` starts only the NIC again, and the services of the host's\n" +
			"daemon, unless they crashed before. After `rdmalab crash HOST --app`, `restart HOST --app` starts only these services\n" +
			"again. If the NIC or the services run already, these flags change nothing; --app fails while the services hang.\n" +
			"restart does not start the programs and tests that were running before. A link that was cut stays cut.\n\n" +
			"A restart also ends fault rules. A restarted switch has only those of the rack file, and no partition. A restarted\n" +
			"host has only those rules on its memory (kind tear) that are in the rack file; rules on its link go on. If --for was\n" +
			"given to `rdmalab crash`, restart with the same flag, --app, --nic or neither, cancels that timer; without a flag it\n" +
			"also cancels the timer of `rdmalab hang` without --app. When the host or switch is up, restart prints so.",
		Example: "  rdmalab restart ms0\n" +
			"  rdmalab restart cn0 --nic\n" +
			"  rdmalab restart switch",
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
