package rack

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/topo/rackplan"
)

// The nodes of a test rack run the test binary itself. Its first argument chooses what it is: a
// node's process 1, a daemon without network, a timer, or a controller that dies after a step.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		f := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
		dir, name := f.String("rack-dir", "", ""), f.String("name", rackfile.SwitchName, "")
		rack, node, action := f.String("rack", "", ""), f.String("node", "", ""), f.String("action", "", "")
		isSwitch := f.Bool("switch", false, "")
		after, die := f.Duration("after", 0, ""), f.String("die-after", "", "")
		switch os.Args[1] {
		case "node-init":
			parse(f)
			os.Exit(NodeInit(*dir, *name, NodeKind{Switch: *isSwitch}))
		case "host", "switchd":
			parse(f)
			os.Exit(stubDaemon(rackfile.Paths{Dir: *dir}, *name))
		case "timer":
			parse(f)
			os.Exit(report(RunTimer(context.Background(), func() (*Rack, error) { return openHere(*rack) }, *after, Doers()[Action(*action)], *node)))
		case "exec-init":
			parse(f)
			os.Exit(ExecInit("", f.Arg(0), f.Args()[1:]))
		case "exec":
			parse(f)
			r, err := Open(*rack)
			if err != nil {
				os.Exit(report(err))
			}
			_, err = r.Exec(*node, []string{"cat"})
			os.Exit(report(err))
		case "up-on-full-disk":
			parse(f)
			os.Exit(report(upOnFullDisk(*rack, *die)))
		case "apply-and-die":
			parse(f)
			os.Exit(report(applyAndDie(*rack, *die)))
		case "up-and-die", "down-and-die":
			parse(f)
			os.Exit(report(dieHalfWay(os.Args[1], *rack, *die)))
		}
	}
	goleak.VerifyTestMain(m)
}

func parse(f *flag.FlagSet) { _ = f.Parse(os.Args[2:]) } // ExitOnError

func report(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// signalsEnv is the variable that makes the programs of the test use the keeper without cgroups.
const signalsEnv = "RACKTEST_SIGNALS"

// openHere is Open with the keeper that the test has chosen.
func openHere(name string) (*Rack, error) {
	r, err := Open(name)
	if err == nil && os.Getenv(signalsEnv) != "" {
		r.useCgroup("", name)
	}
	return r, err
}

// stubDaemon answers GET /status as the real daemons do, and has no other function.
func stubDaemon(p rackfile.Paths, name string) int {
	if exists(p.Dir + "/fail-" + name) {
		fmt.Println("this daemon was told to fail")
		return 3
	}
	var m control.Mux
	control.Handle(&m, "GET /status", func(*http.Request, struct{}) (map[string]any, error) {
		return map[string]any{"name": name, "nic": map[string]string{"state": "up"}}, nil
	})
	type none = struct{}
	control.Handle(&m, "POST /rack", func(*http.Request, none) (none, error) { return none{}, nil })
	control.Handle(&m, "GET /program", func(*http.Request, none) (any, error) { return map[string]string{"name": rackfile.ProgramForward}, nil })
	control.Handle(&m, "GET /rules", func(*http.Request, none) ([]none, error) { return []none{}, nil })
	control.Handle(&m, "GET /faults", func(*http.Request, none) ([]none, error) { return []none{}, nil })
	s, err := control.Serve(p.Socket(name), &m)
	if err != nil {
		return report(err)
	}
	defer s.Close()
	time.Sleep(10 * time.Minute) // longer than any test; a forgotten daemon ends by itself
	return 0
}

// dieHalfWay is a controller that kills itself after a given step.
func dieHalfWay(what, rack, step string) error {
	r := handle(rack)
	r.Spec = testSpec(rack)
	r.reached = func(s string) {
		if s == step {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	if what == "up-and-die" {
		return builder{rack: r}.up(context.Background())
	}
	_, err := r.remover().down(context.Background())
	return err
}

// applyAndDie is a controller that kills itself after a given step of an apply.
func applyAndDie(rack, step string) error {
	r, err := Open(rack)
	if err != nil {
		return err
	}
	r.reached = func(s string) {
		if s == step {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	return applyTo(context.Background(), r, changedSpec(rack))
}

func applyTo(ctx context.Context, r *Rack, want *rackfile.Rack) error {
	return r.Applier(want, false).Apply(ctx, func(*rackplan.Plan) {}, func(string) {})
}

// upOnFullDisk brings a rack up where the state folder has room for only this number of files, the
// folder itself included. The process has a mount namespace of its own, so that other processes do
// not see that folder. Its file system is mounted on the folder above: when the last other rack goes
// down, the machine's state folder is removed, and the kernel detaches in all namespaces what is
// mounted on it.
//
// Before it brings the rack up, upOnFullDisk prints a line and reads its input to the end.
func upOnFullDisk(rack, files string) error {
	room, err := strconv.Atoi(files)
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("full", filepath.Dir(rackfile.StateRoot), "tmpfs", 0, fmt.Sprintf("nr_inodes=%d", room+1)); err != nil {
		return err
	}
	if err := os.Mkdir(rackfile.StateRoot, 0o755); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	_, err = Up(context.Background(), testSpec(rack))
	return err
}

// testSpec describes a small rack.
func testSpec(name string) *rackfile.Rack { return spec(name, "cn[0-1]") }

// changedSpec is testSpec without cn0, and with cn2.
func changedSpec(name string) *rackfile.Rack { return spec(name, "cn[1-2]") }

func spec(name, compute string) *rackfile.Rack {
	r, err := rackfile.Parse([]byte("name: " + name + `
hosts:
  - name: ms0
    role: memory
  - name: ` + compute + `
    role: compute
`))
	if err != nil {
		panic(err)
	}
	return r
}

// needRoot skips a test that needs root.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("racks need root; run the test with sudo")
	}
	if err := unix.Access(filepath.Dir(rackfile.StateRoot), unix.W_OK); err != nil {
		t.Skipf("racks need a writable /run: %v", err)
	}
}

// rackName returns a rack name that no other test run uses; the rack is removed after the test.
func rackName(t *testing.T, suffix string) string {
	t.Helper()
	needRoot(t)
	name := fmt.Sprintf("racktest-%d-%s", os.Getpid(), suffix)
	clean := func() {
		if _, err := Down(context.Background(), name); err != nil {
			t.Errorf("down: %v", err)
		}
	}
	clean()
	t.Cleanup(clean)
	return name
}

// mustUp brings a test rack up.
func mustUp(t *testing.T, name string) *Rack {
	t.Helper()
	r, err := Up(t.Context(), testSpec(name))
	if err != nil {
		if errors.Is(err, ErrPrivilege) {
			t.Skipf("racks cannot be made here: %v", err)
		}
		t.Fatal(err)
	}
	return r
}
