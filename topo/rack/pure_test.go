package rack

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/nl"
)

func TestHostsFile(t *testing.T) {
	r := &Rack{Spec: testSpec("a")}
	want := "127.0.0.1 localhost\n::1 localhost\n" +
		"10.77.0.2 ms0\nfd00:77::2 ms0\n10.77.0.3 cn0\nfd00:77::3 cn0\n10.77.0.4 cn1\nfd00:77::4 cn1\n"
	if got := hostsFile(r.Spec); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestInitAndDaemon(t *testing.T) {
	ps := []procStat{{pid: 10, ppid: 1, nspid: 1}, {pid: 11, ppid: 10, nspid: 2}, {pid: 12, ppid: 9, nspid: 3}, {pid: 13, ppid: 10, nspid: 4}}
	if first, daemon := initAndDaemon(ps, false); first != 10 || daemon != 11 {
		t.Errorf("process 1 is %d, the daemon %d; want 10 and 11", first, daemon)
	}
	if first, daemon := initAndDaemon(ps[1:], false); first != 0 || daemon != 0 {
		t.Errorf("without process 1: %d, %d", first, daemon)
	}
	nested := append(ps, procStat{pid: 14, ppid: 12, nspid: 1}, procStat{pid: 15, ppid: 14, nspid: 2})
	if first, daemon := initAndDaemon(nested, false); first != 10 || daemon != 11 {
		t.Errorf("beside a pid namespace that a program has made, process 1 is %d, the daemon %d; want 10 and 11", first, daemon)
	}
	if first, daemon := initAndDaemon(nested, true); first != 10 || daemon != 10 {
		t.Errorf("with a shared process, process 1 is %d, the daemon %d; want 10 and 10", first, daemon)
	}
}

func TestTopsOfOtherRacks(t *testing.T) {
	points := []string{"/", "/run", "/run/rdmalab/a", "/run/rdmalab/a/netns/cn0", "/run/rdmalab/b", "/run/rdmalab/b", "/run/rdmalab/ab/netns/x", "/run/other"}
	if got, want := tops(points, "/run/rdmalab/a"), []string{"/run/rdmalab/b", "/run/rdmalab/b", "/run/rdmalab/ab/netns/x"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := tops(points, "/run/rdmalab/b"), []string{"/run/rdmalab/a", "/run/rdmalab/ab/netns/x"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestReadProc(t *testing.T) {
	p, ok := readProc(os.Getpid())
	if !ok || p.pid != os.Getpid() || p.ppid != os.Getppid() || p.start == 0 || p.state == 'Z' || p.nspid == 0 {
		t.Errorf("this process is %+v, %v", p, ok)
	}
	if _, ok := readProc(1 << 30); ok {
		t.Error("a process that cannot be was read")
	}
}

func TestLinkState(t *testing.T) {
	links := map[string]nl.Link{"a": {Up: true, Carrier: true}, "b": {Up: true}, "c": {}}
	for port, want := range map[string]LinkState{"a": LinkUp, "b": LinkNoCarrier, "c": LinkDown, "d": LinkMissing} {
		if got := linkState(links, port); got != want {
			t.Errorf("link %s is %s, want %s", port, got, want)
		}
	}
}

func TestWorstState(t *testing.T) {
	s := Status{Switch: NodeStatus{State: StateUp}, Hosts: []NodeStatus{{State: StateUp}, {State: StateCut}, {State: StateHung}}}
	if got := s.Worst(); got != StateHung {
		t.Errorf("the worst is %s, want hung", got)
	}
	s.Hosts = s.Hosts[:1]
	if got := s.Worst(); got != StateUp {
		t.Errorf("the worst is %s, want up", got)
	}
}

func TestNodesAreStartedByUpOnly(t *testing.T) {
	if code := NodeInit(t.TempDir(), "cn0", NodeKind{}); code == 0 {
		t.Error("process 1 of a node ran as another process")
	}
}

func TestNamesAreChecked(t *testing.T) {
	if _, err := Open("../etc"); err == nil || !strings.Contains(err.Error(), "rack name") {
		t.Errorf("open of a path: %v", err)
	}
	if _, err := Down(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("down without a name: %v", err)
	}
	r := &Rack{Spec: testSpec("a")}
	if err := r.checkNode(rackfile.SwitchName); err != nil {
		t.Errorf("the switch is no node: %v", err)
	}
	if err := r.CheckHost(rackfile.SwitchName); err == nil {
		t.Error("the switch is a host")
	}
}

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{os.ErrPermission, "sudo"},
		{&os.PathError{Op: "open", Path: "/x", Err: os.ErrPermission}, "sudo"},
	} {
		if err := privilege(c.err); !errors.Is(err, ErrPrivilege) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v became %v", c.err, err)
		}
	}
}
