package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/uverbs/preload"
	"github.com/rdmalab/rdmalab/topo/container"
	"github.com/rdmalab/rdmalab/topo/doctor"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/machines"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/racks"
)

const (
	// verifyWait bounds the check of one path.
	verifyWait = 30 * time.Second
	// verifyAtOnce bounds how many hosts verify their paths at the same time. A memory server
	// refuses connections for which its queue has no room.
	verifyAtOnce = 16
)

func upCmd() *cobra.Command {
	var file, logFormat string
	var noVerify, compact, planned, stay bool
	var slow int
	var in containerFlags
	cmd := &cobra.Command{
		Use:   "up [-f RACK.yaml]",
		Short: "Bring a rack up and verify every compute to memory path",
		Args:  fileByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := readRack(cmd, file)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("slow") {
				if err := s.SlowDown(slow); err != nil {
					return badUse("--slow: %w", err)
				}
			}
			if compact {
				if err := s.Share(); err != nil {
					return badUse("--compact: %w", err)
				}
			}
			switch logFormat {
			case "json", "text":
				s.LogJSON = logFormat == "json"
			default:
				return badUse("--log-format %.40q: %swant text or json", logFormat, nearest.Meant(logFormat, []string{logText, logJSON}))
			}
			settings, err := in.settings(cmd)
			if err != nil {
				return err
			}
			unix.Umask(umask)
			switch {
			case len(s.Machines) == 0 && planned:
				return badUse("--plan shows where the nodes of a rack on several machines go; this rack file has no key machines")
			case planned:
				if err := machines.Distinct(cmd.Context(), s); err != nil {
					return err
				}
				return plan(cmd.OutOrStdout(), s)
			case len(s.Machines) > 0 && settings != nil:
				return badUse("hosts that are containers are on one machine: leave out `machines` in the rack file, or --runtime docker")
			case len(s.Machines) > 0 && stay:
				return badUse("--stay is for a rack on one machine: leave it out, and write `rdmalab down` at the end")
			case len(s.Machines) > 0:
				return upOnMachines(cmd, s, !noVerify)
			}
			return runUp(cmd, s, settings, !noVerify, stay)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "rack file to bring up (default: the built-in rack)")
	cmd.Flags().BoolVar(&planned, "plan", false, "of a rack on several machines: print what goes where, and do nothing")
	cmd.Flags().BoolVar(&noVerify, "no-verify", false, "do not verify the paths from compute hosts to memory hosts")
	cmd.Flags().IntVar(&slow, "slow", 0, "bring the rack up in slow motion, by this factor in place of the one in the rack file")
	cmd.Flags().BoolVar(&compact, "compact", false, "one process for the switch and the NICs of all hosts (daemons: shared)")
	cmd.Flags().StringVar(&logFormat, "log-format", "text", "how the daemons write their logs: text (key=value) or json, one object a line")
	complete(cmd, "log-format", "text", "json")
	cmd.Flags().BoolVar(&stay, "stay", false, "stay until Ctrl-C or SIGTERM, and take the rack down then")
	in.add(cmd)
	must(cmd.MarkFlagFilename("file", "yaml", "yml"))
	return cmd
}

// fileByFlag refuses arguments; to a single one it answers that it belongs behind -f.
func fileByFlag(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && strings.HasSuffix(args[0], "ml") {
		return badUse("a rack file comes behind -f; write: %s -f %s (see `%s --help`)", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return cobra.NoArgs(cmd, args)
}

// readRack reads a rack file, or the built-in one, and gives the rack the name of --rack if the
// flag is set.
func readRack(cmd *cobra.Command, file string) (*rackfile.Rack, error) {
	s, err := fileRack(file)
	if err != nil {
		return nil, asUse(err)
	}
	if f := cmd.Flag("rack"); f.Changed || os.Getenv(rackEnv) != "" {
		if s.Name, err = rackName(cmd); err != nil {
			return nil, err
		}
	}
	return s, cmd.Flag("rack").Value.Set(s.Name) // what the command says is of this rack
}

// fileRack reads a rack file, or the built-in one if file is "".
func fileRack(file string) (*rackfile.Rack, error) { return fileOf(file, rackfile.ParseFile) }

// simFile is fileRack for a rack in virtual time, which may be larger.
func simFile(file string) (*rackfile.Rack, error) { return fileOf(file, rackfile.ParseSim) }

// fileOf reads a rack file; "" is the built-in one.
func fileOf(file string, parse rackParser) (*rackfile.Rack, error) {
	if file == "" {
		return parse.rack(racks.DefaultName, racks.Default())
	}
	data, err := readFile(file)
	if err != nil {
		return nil, badUse("rack file: %w", err)
	}
	r, err := parse.rack(file, data)
	return r, asUse(err)
}

func runUp(cmd *cobra.Command, s *rackfile.Rack, in *container.Settings, verify, stay bool) error {
	begin := time.Now()
	r, err := bringUp(cmd.Context(), s, in)
	already := errors.Is(err, rack.ErrAlreadyUp)
	if err != nil && !already {
		if errors.Is(err, rack.ErrPrivilege) {
			err = fmt.Errorf("%w; `rdmalab doctor` says what else is missing", err)
		}
		return err
	}
	if already && stay {
		return fmt.Errorf("rack %q is up already, and --stay takes away only what it has brought up: leave it out", s.Name)
	}
	err = tellUp(cmd, r, in, already, verify, time.Since(begin))
	if stay {
		return stayUp(cmd, s.Name, err)
	}
	return err
}

// tellUp prints what was brought up, and verifies the paths of a new rack. took is how long it took.
func tellUp(cmd *cobra.Command, r *rack.Rack, in *container.Settings, already, verify bool, took time.Duration) error {
	s := r.Spec
	status, err := r.Status(cmd.Context())
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if len(r.Lost) > 0 {
		fmt.Fprintf(out, "rack %q had lost %s: it was cleared and made again\n", s.Name, strings.Join(r.Lost, " "))
	}
	if len(r.Revived) > 0 {
		fmt.Fprintf(out, "rack %q had lost its %s: started again\n", s.Name, strings.Join(r.Revived, " "))
	}
	if already {
		fmt.Fprintf(out, "rack %q is up already\n\n", s.Name)
	} else {
		switches := "a switch"
		if n := len(s.SwitchNames()); n > 1 {
			switches = fmt.Sprintf("%d switches", n)
		}
		fmt.Fprintf(out, "rack %q is up: %d %s and %s in %v\n\n", s.Name, len(s.HostNames()), either(in == nil, "hosts", "hosts in containers"), switches, took.Round(time.Millisecond))
	}
	if err := printStatus(hinted(cmd, out), status); err != nil {
		return err
	}
	if text := slowMotion(s); text != "" {
		fmt.Fprintf(out, "\n%s\n", text)
	}
	if verify && !already {
		fmt.Fprintln(out)
		if err := verifyPaths(cmd, r); err != nil {
			return fmt.Errorf("rack %q is up, but not every path works:\n%w\nSee `rdmalab logs`; `rdmalab down` takes it away", s.Name, err)
		}
	}
	_, has := preload.Library()
	warnNoLibrary(cmd.ErrOrStderr(), has)
	_, err = fmt.Fprint(out, hintsOf(cmd).named(nextSteps(s)))
	if in == nil && isTerminal(os.Stderr) { // elsewhere the same rack prints the same on each machine
		fmt.Fprint(cmd.ErrOrStderr(), adviseCompact(s, runtime.NumCPU()))
	}
	return err
}

// verifyPaths verifies the paths from compute hosts to memory servers, except those that
// the hosts' partitions (P_Keys) forbid. The compute hosts do this concurrently.
func verifyPaths(cmd *cobra.Command, r *rack.Rack) error {
	from, to := r.Spec.ByRole(rackfile.Compute), r.Spec.ByRole(rackfile.Memory)
	if len(from) == 0 || len(to) == 0 {
		return nil // the rack has no path to verify
	}
	begin := time.Now()
	turns := (len(from) + verifyAtOnce - 1) / verifyAtOnce
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Duration(turns*len(to))*verifyWait)
	defer cancel()
	errs, paths := make([]error, len(from)), 0
	places := make(chan struct{}, verifyAtOnce)
	var wg sync.WaitGroup
	for i := range from {
		allowed := slices.DeleteFunc(slices.Clone(to), func(h rackfile.Host) bool { return !from[i].Reaches(&h) })
		if paths += len(allowed); len(allowed) == 0 {
			continue
		}
		places <- struct{}{}
		wg.Go(func() {
			errs[i] = verifyFrom(ctx, r, from[i].Name, allowed)
			<-places
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return say(cmd, "verified %d paths by WRITE, READ, CAS and FAA in %v", paths, time.Since(begin).Round(time.Millisecond))
}

func verifyFrom(ctx context.Context, r *rack.Rack, from string, to []rackfile.Host) error {
	req := hostd.VerifyRequest{}
	for i := range to {
		req.To = append(req.To, to[i].Name)
	}
	var failed error
	n := 0
	err := control.Items(ctx, r.Control(from), http.MethodPost, hostd.PathVerify, req, func(item hostd.VerifyItem) error {
		n++
		if !item.OK {
			failed = errors.Join(failed, fmt.Errorf("  %s to %s: %s", item.From, item.To, item.Error))
		}
		return nil
	})
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return fmt.Errorf("  from %s: %w", from, err)
	case n != len(to):
		return fmt.Errorf("  from %s: %d of %d paths were verified", from, n, len(to))
	}
	return nil
}

func nextSteps(s *rackfile.Rack) string {
	names := s.HostNames()
	from, to := names[0], names[len(names)-1]
	c, m := s.ByRole(rackfile.Compute), s.ByRole(rackfile.Memory)
	switch {
	case len(c) > 0 && len(m) > 0:
		from, to = c[0].Name, m[0].Name
	case len(names) == 1:
		to = ""
	}
	var b strings.Builder
	b.WriteString("\nTry:\n")
	if s.Name != defaultRack && os.Getenv(rackEnv) != s.Name {
		fmt.Fprintf(&b, "  export %s=%s\n", rackEnv, s.Name)
	}
	if to != "" {
		fmt.Fprintf(&b, "  rdmalab perf write_bw --from %s --to %s --size 64KiB --iters 2000 --verify\n", from, to)
	}
	fmt.Fprintf(&b, "  rdmalab inject loss 10%% --link %s       # and the same again; then: rdmalab heal\n", from)
	fmt.Fprintf(&b, "  rdmalab counters %s\n", from)
	if _, err := exec.LookPath("ping"); err == nil && to != "" {
		fmt.Fprintf(&b, "  rdmalab exec %s -- ping -c 1 %s\n", from, to)
	}
	b.WriteString("  rdmalab down\n")
	return b.String()
}

// adviseCompact says what a compact rack would gain on a machine with so few processors; "" if this rack is
// one, or cannot be one.
func adviseCompact(s *rackfile.Rack, processors int) string {
	could := *s
	if processors > doctor.FewProcessors || s.Shared() || could.Share() != nil {
		return ""
	}
	return fmt.Sprintf("\nProcessors of this machine: %d; processes that poll: %d. `rdmalab up --compact` makes them one, and a READ takes a fifth of the time.\n",
		processors, len(s.HostNames())+1)
}
