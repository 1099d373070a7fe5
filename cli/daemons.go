package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/topo/compact"
	"github.com/rdmalab/rdmalab/topo/crashlog"
	"github.com/rdmalab/rdmalab/topo/guests"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// hiddenCmd makes a command that the program itself starts, and that no help lists.
func hiddenCmd(use, short string, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Hidden: true, Args: cobra.NoArgs, RunE: run}
}

// umask is the umask of up and of the daemons, whatever umask the shell has. Users other than root
// may read some of the files that up and the daemons make, but may write none.
const umask = 0o022

// daemonLog is the log of a daemon of a rack. Its reader decodes the rack's description once.
type daemonLog struct {
	paths  rackfile.Paths
	out    io.Writer
	reader guests.Reader
}

// logOf returns the log of the command that is a daemon of the rack in folder dir.
func logOf(cmd *cobra.Command, dir string) *daemonLog {
	return &daemonLog{paths: rackfile.Paths{Dir: dir}, out: cmd.ErrOrStderr()}
}

func (l *daemonLog) logger() *slog.Logger { return slog.New(l.reader.LogHandler(l.paths, l.out)) }

func (l *daemonLog) isJSON() bool { return l.reader.LogsJSON(l.paths) }

// run runs the daemon. It writes why the daemon has ended to the log, in the log's format, and returns the exit
// status in place of the error. How Go prints a panic is made a record of a log of JSON by the parent of a daemon
// that is supervised.
func (l *daemonLog) run(daemon func() error) (err error) {
	err = daemon()
	var status exitCode
	switch {
	case errors.As(err, &status):
		return status // of a further process, which has written why
	case err != nil:
		l.logger().Error("the daemon ends", "error", err)
		return exitCode(1)
	}
	return nil
}

// supervised runs the daemon as run, if its log is JSON in a further process whose standard error this one reads. It is
// for daemons of a rack that process 1 of a node has not started: the rack lets them in by a gate.
func (l *daemonLog) supervised(name string, daemon func() error) error {
	if l.out != io.Writer(os.Stderr) || !l.isJSON() || crashlog.Supervised() {
		return l.run(daemon)
	}
	rackName := filepath.Base(l.paths.Dir)
	if r, err := l.reader.Load(l.paths); err == nil {
		rackName = r.Name
	}
	return l.run(func() error {
		if err := rack.PassGate(); err != nil {
			return err
		}
		return supervise("rack", rackName, "host", name)
	})
}

// supervise runs this command again in a process whose standard error becomes records of JSON with the attributes. It
// returns the exit status.
func supervise(attributes ...any) error {
	status, err := crashlog.Supervise(os.Stderr, attributes...)
	if err == nil && status != 0 {
		err = exitCode(status)
	}
	return err
}

func hostCmd() *cobra.Command {
	var cfg hostd.Config
	cmd := hiddenCmd("host", "Be the daemon of a host (started by `rdmalab up`)", func(cmd *cobra.Command, _ []string) error {
		unix.Umask(umask)
		log := logOf(cmd, cfg.Dir)
		cfg.Log = log.logger()
		return log.run(func() error { return hostd.Run(cmd.Context(), cfg) })
	})
	cmd.Flags().StringVar(&cfg.Dir, "rack-dir", "", "the rack's state folder (required)")
	cmd.Flags().StringVar(&cfg.Name, "name", "", "the host's name (required)")
	cmd.Flags().StringVar(&cfg.Ifname, "ifname", "", "the interface of the NIC (default rack0)")
	must(cmd.MarkFlagRequired("rack-dir"))
	must(cmd.MarkFlagRequired("name"))
	return cmd
}

func switchdCmd() *cobra.Command {
	var dir, name string
	cmd := hiddenCmd("switchd", "Daemon of a switch (started by up)", func(cmd *cobra.Command, _ []string) error {
		unix.Umask(umask)
		log := logOf(cmd, dir)
		return log.run(func() error {
			return switchd.Main(cmd.Context(), switchd.Place{Dir: dir, Name: name}, log.logger())
		})
	})
	cmd.Flags().StringVar(&dir, "rack-dir", "", "state folder of the rack")
	cmd.Flags().StringVar(&name, "name", "", "name of the switch (default switch)")
	must(cmd.MarkFlagRequired("rack-dir"))
	return cmd
}

func daemonsCmd() *cobra.Command {
	var dir string
	cmd := hiddenCmd("daemons", "Run all nodes of a rack (started by up)", func(cmd *cobra.Command, _ []string) error {
		unix.Umask(umask)
		return logOf(cmd, dir).supervised(rackfile.DaemonsName, func() error {
			return rack.RunShared(func() error { return compact.Main(cmd.Context(), dir) })
		})
	})
	cmd.Flags().StringVar(&dir, "rack-dir", "", "state folder of the rack")
	must(cmd.MarkFlagRequired("rack-dir"))
	return cmd
}

func nodeInitCmd() *cobra.Command {
	var dir, name string
	var kind rack.NodeKind
	var shared bool
	cmd := hiddenCmd("node-init", "Process 1 of a node (started by up)", func(*cobra.Command, []string) error {
		if shared {
			kind.Stand = func(ctx context.Context) error { return compact.Stand(ctx, dir, name) }
		}
		return exitCode(rack.NodeInit(dir, name, kind))
	})
	cmd.Flags().StringVar(&dir, "rack-dir", "", "state folder of the rack")
	cmd.Flags().StringVar(&name, "name", "", "name of the node")
	cmd.Flags().BoolVar(&kind.Switch, "switch", false, "the node is a switch")
	cmd.Flags().StringVar(&kind.LogJSON, "log-json", "", "name of the rack, if its logs are JSON")
	cmd.Flags().BoolVar(&shared, "shared", false, "let the shared process of the rack run the node")
	return cmd
}

func timerCmd() *cobra.Command {
	var after time.Duration
	var action, node string
	cmd := hiddenCmd("timer", "Undo a fault after a while (started by --for)", func(cmd *cobra.Command, _ []string) error {
		name, err := rackName(cmd)
		if err != nil {
			return err
		}
		do, ok := doers()[rack.Action(action)]
		if !ok {
			return fmt.Errorf("unknown action %q", action)
		}
		open := func() (*rack.Rack, error) { return rack.Open(name) }
		return logOf(cmd, rackfile.PathsOf(name).Dir).supervised(node, func() error {
			return rack.RunTimer(cmd.Context(), open, after, do, node)
		})
	})
	cmd.Flags().DurationVar(&after, "after", 0, "time to wait")
	cmd.Flags().StringVar(&action, "action", "", "what to do then")
	cmd.Flags().StringVar(&node, "node", "", "host or switch that it is done to")
	return cmd
}

func execInitCmd() *cobra.Command {
	var dir string
	cmd := hiddenCmd("exec-init -- PATH ARG0 [ARG...]", "Become a program inside a host (started by exec)", func(_ *cobra.Command, args []string) error {
		return exitCode(rack.ExecInit(dir, args[0], args[1:]))
	})
	cmd.Args = cobra.MinimumNArgs(2)
	cmd.Flags().StringVar(&dir, "rack-dir", "", "state folder of the rack, to make the mounts of a host")
	return cmd
}

// doers returns, for each action, the function that performs it. The functions of package rack
// start and resume processes and set links; the functions that are added here also send requests to
// daemons.
func doers() map[rack.Action]rack.Doer {
	d := rack.Doers()
	d[rack.ActionNIC] = func(ctx context.Context, r *rack.Rack, node string) error {
		return setNIC(ctx, r, node, hostd.StateUp)
	}
	d[rack.ActionApps] = func(ctx context.Context, r *rack.Rack, node string) error {
		return askNICs(ctx, r, node, hostd.PathStartApp)
	}
	d[rack.ActionResumeApps] = resumeApps
	d[rack.ActionEndPartition] = func(ctx context.Context, r *rack.Rack, _ string) error {
		return askSwitch(ctx, r, http.MethodDelete, nil)
	}
	return d
}

func setNIC(ctx context.Context, r *rack.Rack, host, state string) error {
	return askHost(ctx, r, host, hostd.PathNIC, hostd.NICRequest{State: state})
}

func askHost(ctx context.Context, r *rack.Rack, host, path string, in any) error {
	if err := r.CheckHost(host); err != nil {
		return err
	}
	return ask(ctx, r.Control(host), host, http.MethodPost, path, in, nil)
}

// askNICs sends a request about the application to a host, for each of its NICs: services and tests of
// the host use one of them each.
func askNICs(ctx context.Context, r *rack.Rack, host, path string) error {
	if err := onlyHost(r.Spec, host); err != nil {
		return err
	}
	if err := r.CheckHost(host); err != nil {
		return err
	}
	for _, nic := range r.Spec.NICs(host) {
		if err := askHost(ctx, r, nic.Name, path, nil); err != nil {
			return err
		}
	}
	return nil
}

// ask sends a request to a node's daemon, and waits at most daemonWait for the answer.
func ask(ctx context.Context, client *control.Client, node, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, daemonWait)
	defer cancel()
	return withNode(client.Call(ctx, method, path, in, out), node)
}

// daemonWait bounds how long a daemon may take to answer.
const daemonWait = 5 * time.Second

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
