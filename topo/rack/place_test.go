package rack

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/nl"
)

func TestProcessors(t *testing.T) {
	const auto, none = rackfile.AutoCPU, rackfile.NoCPU
	for _, c := range []struct {
		name       string
		sw, host   int
		allowed    []int
		wantSwitch []int
		wantHost   []int
	}{
		{"two", auto, auto, []int{0, 1}, []int{1}, []int{0}},
		{"one", auto, auto, []int{3}, nil, nil},
		{"some of many", auto, auto, []int{2, 5, 7}, []int{7}, []int{2, 5}},
		{"off", none, none, []int{0, 1}, nil, nil},
		{"switch off", none, auto, []int{0, 1}, nil, nil},
		{"host off", auto, none, []int{0, 1}, []int{1}, nil},
		{"switch given", 0, auto, []int{0, 1, 2}, []int{0}, []int{1, 2}},
		{"switch given elsewhere", 9, auto, []int{0, 1}, []int{9}, []int{0, 1}},
		{"host given", auto, 1, []int{0, 1}, []int{1}, []int{1}},
		{"all given on one", 0, 0, []int{0}, []int{0}, []int{0}},
	} {
		s := &rackfile.Rack{Switch: rackfile.Switch{CPU: c.sw}, Hosts: []rackfile.Host{{Name: "cn0", CPU: c.host}}}
		if got := processors(s, rackfile.SwitchName, c.allowed); !slices.Equal(got, c.wantSwitch) {
			t.Errorf("%s: switch on %v, want %v", c.name, got, c.wantSwitch)
		}
		if got := processors(s, "cn0", c.allowed); !slices.Equal(got, c.wantHost) {
			t.Errorf("%s: host on %v, want %v", c.name, got, c.wantHost)
		}
	}
}

// fullKeeper is a keeper whose cgroups accept no process with real-time priority.
type fullKeeper struct{ keeper }

func (fullKeeper) adopt(string, int) error {
	return fmt.Errorf("put process into its cgroup: %w", unix.EINVAL)
}

// If the cgroup of a node may not have a real-time process, the error says what the rack file asks
// for.
func TestACgroupWithoutRealtime(t *testing.T) {
	for priority, want := range map[string]error{"": unix.EINVAL, rackfile.PriorityRealtime: errRealtime} {
		r := launcher{spec: &rackfile.Rack{Priority: priority}, keep: fullKeeper{}}
		cmd := exec.Command("sleep", "60")
		if err := r.launch("ms0", cmd, cmd.Start); !errors.Is(err, want) {
			t.Errorf("priority %q: %v, want %v", priority, err, want)
		}
	}
}

// A process that place starts has the priority of the rack, and the thread that starts it keeps its
// own.
func TestPriority(t *testing.T) {
	policyOf := func(pid int) uint32 {
		t.Helper()
		a, err := unix.SchedGetAttr(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		return a.Policy
	}
	own := policyOf(0) // the test may itself have another policy than SCHED_NORMAL
	for priority, want := range map[string]uint32{"": own, rackfile.PriorityNormal: own, rackfile.PriorityRealtime: unix.SCHED_RR} {
		r := launcher{spec: &rackfile.Rack{Priority: priority, Switch: rackfile.Switch{CPU: rackfile.NoCPU}}}
		err := nl.OnOwnThread(func() error {
			cmd := exec.Command("sleep", "60")
			if err := r.place(rackfile.SwitchName, cmd.Start); err != nil {
				return err
			}
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			if got := policyOf(cmd.Process.Pid); got != want {
				t.Errorf("priority %q: policy %d, want %d", priority, got, want)
			}
			if got := policyOf(0); got != own {
				t.Errorf("priority %q: the starting thread has policy %d, want %d", priority, got, own)
			}
			return nil
		})
		// Not every user and kernel may give real-time priority.
		if err != nil && (priority != rackfile.PriorityRealtime || !errors.Is(err, errRealtime)) {
			t.Fatal(err)
		}
	}
}
