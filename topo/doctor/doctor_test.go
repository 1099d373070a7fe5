package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// fake is a machine on which every check succeeds; tests remove parts of it.
type fake struct {
	System
	files    map[string]string
	programs map[string]string // first lines of output, by command line
	closed   []string
	noNS     map[int]error
	links    Links
	cgroup   map[string]bool
	cgroupEr error
	memlock  uint64
}

func healthy() *fake {
	f := &fake{
		files: map[string]string{
			"/proc/self/status":                  "Name:\tx\nCapPrm:\t0\nCapEff:\t000001ffffffffff\n",
			"/proc/self/mounts":                  "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\ntmpfs /run tmpfs rw 0 0\n",
			"/proc/sys/user/max_user_namespaces": "1000\n",
			"/etc/os-release":                    "NAME=x\nID=debian\n",
		},
		programs: map[string]string{
			"docker version --format {{.Server.Version}}": "20.10.24",
			"docker compose version --short":              "2.40.3",
			"podman --version":                            "podman version 4.3.1",
			"runc":                                        "",
			"qemu-system-x86_64 --version":                "QEMU emulator version 7.2.22 (Debian 1:7.2)",
			"tshark --version":                            "TShark (Wireshark) 4.0.17.",
		},
		noNS:    map[int]error{},
		links:   Links{Port: afpacket.Info{Ifname: "doctor0", MTU: 4200, Receive: "ring 512x4352", Silencer: "tcx"}},
		cgroup:  map[string]bool{"cgroup.freeze": true, "cgroup.kill": true},
		memlock: ^uint64(0),
	}
	f.System = System{
		Arch: "amd64", CPUs: 2, Release: "6.18.5",
		ReadFile: func(path string) ([]byte, error) {
			if text, ok := f.files[path]; ok {
				return []byte(text), nil
			}
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		},
		Writable: func(path string) error {
			if slices.Contains(f.closed, path) {
				return unix.EACCES
			}
			return nil
		},
		Look: func(program string) (string, error) {
			for argv := range f.programs {
				if first, _, _ := strings.Cut(argv, " "); first == program {
					return "/usr/bin/" + program, nil
				}
			}
			return "", errors.New("not found")
		},
		Run: func(_ context.Context, argv ...string) (string, error) {
			if out, ok := f.programs[strings.Join(argv, " ")]; ok && !strings.HasPrefix(out, "error: ") {
				return out, nil
			} else if ok {
				return "", errors.New(strings.TrimPrefix(out, "error: "))
			}
			return "", errors.New("unknown command")
		},
		Unshare: func(flags int) error { return f.noNS[flags] },
		Memlock: func() (uint64, uint64, error) { return f.memlock, f.memlock, nil },
		Links:   func() Links { return f.links },
		Cgroup: func(_ string, files ...string) (has []bool, err error) {
			for _, name := range files {
				has = append(has, f.cgroup[name])
			}
			return has, f.cgroupEr
		},
	}
	return f
}

func (f *fake) examine(t *testing.T) (Report, map[string]Finding) {
	t.Helper()
	r := Examine(t.Context(), &f.System, Probes())
	byName := make(map[string]Finding, len(r.Findings))
	for _, one := range r.Findings {
		byName[one.Check] = one
		if one.Found == "" || one.Means == "" {
			t.Errorf("%s says nothing: %+v", one.Check, one)
		}
		if (one.State == OK) != (one.Fix == "") {
			t.Errorf("%s is %s and its command is %q", one.Check, one.State, one.Fix)
		}
	}
	return r, byName
}

func TestHealthyMachineIsOKInEveryRespect(t *testing.T) {
	r, _ := healthy().examine(t)
	if !r.Ready || len(r.Findings) != len(Probes()) {
		t.Errorf("ready %v with %d findings of %d", r.Ready, len(r.Findings), len(Probes()))
	}
	for _, f := range r.Findings {
		if f.State != OK {
			t.Errorf("%s: %s: %s", f.Check, f.State, f.Found)
		}
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	const hybrid = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
	for name, c := range map[string]struct {
		take  func(f *fake)
		check string
		state State
		found string // a part of Found
		fix   string // a part of Fix
		ready bool
	}{
		"no root":               {func(f *fake) { f.Euid = 1000 }, "root", Missing, "user 1000", "sudo", false},
		"no capability":         {func(f *fake) { f.files["/proc/self/status"] = "CapEff:\t00000000a80425fb\n" }, "root", Missing, "SYS_ADMIN, NET_ADMIN", "--cap-add SYS_ADMIN --cap-add NET_ADMIN", false},
		"no /proc":              {func(f *fake) { delete(f.files, "/proc/self/status") }, "root", Degraded, "unknown", "/proc", true},
		"kernel before 5.14":    {func(f *fake) { f.Release = "5.10.0-28-amd64" }, "kernel", Degraded, "5.10", "6.6", true},
		"kernel before 6.6":     {func(f *fake) { f.Release = "6.1.0" }, "kernel", Degraded, "6.1", "6.6", true},
		"kernel without number": {func(f *fake) { f.Release = "plan9" }, "kernel", Degraded, "plan9", "uname", true},
		"one processor":         {func(f *fake) { f.CPUs = 1 }, "processors", Degraded, "1", "2 processors", true},
		"no state folder":       {func(f *fake) { f.closed = []string{"/run"} }, "state folder", Missing, "/run", "tmpfs", false},
		"settings read-only":    {func(f *fake) { f.closed = []string{"/proc/sys/net/ipv4/ip_forward"} }, "kernel settings", Missing, "/proc/sys/net", "systempaths=unconfined", false},
		"no pid namespaces":     {func(f *fake) { f.noNS[unix.CLONE_NEWPID] = unix.EINVAL }, "namespaces", Missing, "no pid", "CONFIG_NAMESPACES", false},
		"namespaces forbidden":  {func(f *fake) { f.noNS[unix.CLONE_NEWNET] = unix.EPERM }, "namespaces", Missing, "no net", "SYS_ADMIN", false},
		"user namespaces off":   {func(f *fake) { f.files["/proc/sys/user/max_user_namespaces"] = "0\n" }, "user namespaces", Missing, "off", "sysctl", true},
		"no user namespaces":    {func(f *fake) { delete(f.files, "/proc/sys/user/max_user_namespaces") }, "user namespaces", Missing, "kernel", "CONFIG_USER_NS", true},
		"no veth":               {func(f *fake) { f.links = Links{Err: unix.EOPNOTSUPP} }, "veth", Missing, "not supported", "modprobe veth", false},
		"veth not tried":        {func(f *fake) { f.links = Links{Err: nl.ErrPrivilege} }, "veth", Missing, "not tried", "sudo", false},
		"no packet sockets":     {func(f *fake) { f.links = Links{PortErr: afpacket.ErrPrivilege} }, "packet sockets", Missing, "raw sockets", "NET_RAW", false},
		"no ring":               {func(f *fake) { f.links.Port.Receive = "recvmmsg" }, "receive ring", Degraded, "recvmmsg", "CONFIG_PACKET", true},
		"no tcx": {func(f *fake) {
			f.links.Port.Silencer, f.links.Port.Notes = "socket", []string{"no tc program: invalid argument"}
		}, "silencer", Degraded, "invalid argument", "6.6", true},
		"no bypass": {func(f *fake) {
			f.links.Port.Notes = []string{"sending through the queueing discipline: protocol not available"}
		}, "direct sending", Degraded, "not available", "3.14", true},
		"bypass not tried":  {func(f *fake) { f.links = Links{PortErr: unix.EINVAL} }, "direct sending", Missing, "not tried", "packet sockets", false},
		"no silencer":       {func(f *fake) { f.links.Port.Silencer = "none" }, "silencer", Degraded, "none", "6.6", true},
		"no cgroup2":        {func(f *fake) { f.files["/proc/self/mounts"] = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n" }, "cgroups", Degraded, "no cgroup2", "mount -t cgroup2", true},
		"cgroup2 read-only": {func(f *fake) { f.cgroupEr = unix.EROFS }, "cgroups", Degraded, "read-only", "remount", true},
		"no freezer":        {func(f *fake) { f.cgroup["cgroup.freeze"] = false }, "cgroups", Degraded, "without cgroup.freeze", "5.2", true},
		"no cgroup.kill":    {func(f *fake) { f.cgroup["cgroup.kill"] = false }, "cgroups", Degraded, "without kill", "5.14", true},
		"hybrid cgroups":    {func(f *fake) { f.files["/proc/self/mounts"] = hybrid }, "cgroup v1", Degraded, "hybrid", "runc", true},
		"little locked":     {func(f *fake) { f.memlock = 64 << 10 }, "locked memory", Degraded, "0 MiB", "ulimit", true},
		"no docker": {func(f *fake) {
			delete(f.programs, "docker version --format {{.Server.Version}}")
			delete(f.programs, "docker compose version --short")
		}, "docker engine", Missing, "no docker", "apt-get install -y --no-install-recommends docker.io", true},
		"no engine":           {func(f *fake) { f.programs["docker version --format {{.Server.Version}}"] = "error: Cannot connect" }, "docker engine", Degraded, "Cannot connect", "dockerd", true},
		"no compose":          {func(f *fake) { delete(f.programs, "docker compose version --short") }, "docker compose", Missing, "no compose", "docker-compose", true},
		"no podman on fedora": {func(f *fake) { delete(f.programs, "podman --version"); f.files["/etc/os-release"] = "ID=\"fedora\"\n" }, "podman", Missing, "no podman", "dnf install -y podman", true},
		"podman with crun": {func(f *fake) {
			f.files["/proc/self/mounts"] = hybrid
			delete(f.programs, "runc")
		}, "podman", Degraded, "crun", "runc", true},
		"no qemu on a child of arch": {func(f *fake) {
			delete(f.programs, "qemu-system-x86_64 --version")
			f.files["/etc/os-release"] = "ID=manjaro\nID_LIKE=arch\n"
		}, "qemu", Missing, "qemu-system-x86_64", "pacman -S --noconfirm qemu-base", true},
		"no qemu for it": {func(f *fake) { f.Arch = "riscv64" }, "qemu", Missing, "riscv64", "another", true},
		"no kvm":         {func(f *fake) { f.closed = []string{"/dev/kvm"} }, "kvm", Degraded, "/dev/kvm", "modprobe", true},
		"engine of others": {func(f *fake) {
			f.Euid = 1000
			f.programs["docker version --format {{.Server.Version}}"] = "error: permission denied"
		}, "docker engine", Degraded, "permission denied", "sudo", false},
		"kvm of others":  {func(f *fake) { f.Euid, f.closed = 1000, []string{"/dev/kvm"} }, "kvm", Degraded, "/dev/kvm", "sudo", false},
		"ring not tried": {func(f *fake) { f.links = Links{Err: unix.EOPNOTSUPP} }, "receive ring", Missing, "not tried", "fix veth", false},
		"no tshark, unknown distribution": {func(f *fake) {
			delete(f.programs, "tshark --version")
			delete(f.files, "/etc/os-release")
		}, "tshark", Missing, "no tshark", "install the package tshark", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			c.take(f)
			r, findings := f.examine(t)
			got := findings[c.check]
			if got.State != c.state || !strings.Contains(got.Found, c.found) || !strings.Contains(got.Fix, c.fix) {
				t.Errorf("%s: %+v\nwant %s, found %q, by %q", c.check, got, c.state, c.found, c.fix)
			}
			if r.Ready != c.ready {
				t.Errorf("ready %v, lacking %v", r.Ready, r.Lacking())
			}
			if !c.ready && got.Required && !slices.Contains(r.Lacking(), c.check) {
				t.Errorf("lacking %v without %s", r.Lacking(), c.check)
			}
		})
	}
}

func TestMachineIsAsItWasAfterwards(t *testing.T) {
	traces := func() (found []string) {
		group := fmt.Sprintf("rdmalab-doctor-%d", os.Getpid()) // another process may examine the machine at the same time
		for _, pattern := range []string{filepath.Join(os.TempDir(), "rdmalab-doctor-*"), "/sys/fs/cgroup/" + group, "/sys/fs/cgroup/unified/" + group} {
			list, _ := filepath.Glob(pattern) // the patterns are valid
			found = append(found, list...)
		}
		return found
	}
	t.Setenv("TMPDIR", t.TempDir())
	r := Examine(t.Context(), Machine(), Probes())
	if left := traces(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, f := range r.Findings {
		t.Logf("%-8s %-15s %s", f.State, f.Check, f.Found)
		if f.Found == "" || f.Means == "" || (f.State == OK) != (f.Fix == "") {
			t.Errorf("%+v", f)
		}
	}
}
