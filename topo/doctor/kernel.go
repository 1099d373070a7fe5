package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/topo/nl"
)

// asRoot is the fix for checks that need root.
const asRoot = "sudo rdmalab doctor"

// withLink returns the fix for a check that needs a link and a port, if making them has failed with
// the result l.
func withLink(l Links) string {
	switch {
	case errors.Is(l.Err, nl.ErrPrivilege):
		return asRoot
	case l.Err != nil:
		return "fix veth first"
	}
	return "fix packet sockets first"
}

// stateParent is the folder in which racks keep their state.
const stateParent = "/run"

// Capabilities that racks need, by their bit in /proc/PID/status.
var wanted = []struct {
	bit  uint
	name string
}{{21, "SYS_ADMIN"}, {12, "NET_ADMIN"}, {13, "NET_RAW"}}

func lookRoot(_ context.Context, s *System) Finding {
	const means = "racks are namespaces and raw sockets: `rdmalab up` needs root, the simulator does not"
	if s.Euid != 0 {
		return lacking("user "+strconv.Itoa(s.Euid), means, asRoot)
	}
	status, err := s.ReadFile("/proc/self/status")
	if err != nil {
		return weaker("root; its capabilities are unknown: "+err.Error(), means, "mount -t proc proc /proc")
	}
	effective, err := strconv.ParseUint(value(string(status), "CapEff:"), 16, 64)
	if err != nil {
		return weaker("root; its capabilities are unknown", means, "grep CapEff /proc/self/status")
	}
	var lost []string
	for _, c := range wanted {
		if effective&(1<<c.bit) == 0 {
			lost = append(lost, c.name)
		}
	}
	if len(lost) > 0 {
		return lacking("root without "+strings.Join(lost, ", "), means, "docker run --cap-add "+strings.Join(lost, " --cap-add ")+" …")
	}
	return good("root with SYS_ADMIN, NET_ADMIN, NET_RAW", "racks can be brought up")
}

// lookKernel checks by the kernel's version whether it has cgroup.kill (Linux 5.14) and tcx (6.6).
func lookKernel(_ context.Context, s *System) Finding {
	found := "Linux " + s.Release
	var major, minor int
	if n, _ := fmt.Sscanf(s.Release, "%d.%d", &major, &minor); n != 2 {
		return weaker("version "+strconv.Quote(s.Release), "rdmalab knows Linux versions only", "uname -r")
	}
	switch v := major*1000 + minor; {
	case v < 5014:
		return weaker(found, "hosts are killed process by process, which is not tested: 5.14 has cgroup.kill", "install Linux 6.6 or newer")
	case v < 6006:
		return weaker(found, "without tcx (Linux 6.6), sockets must keep the kernel from answering RoCEv2", "install Linux 6.6 or newer")
	}
	return good(found, "has all that rdmalab uses")
}

// FewProcessors is the largest number of processors with which a rack whose daemons are separate processes is
// much slower than one whose daemons share a process: NICs and switch poll, each in a process of its own.
const FewProcessors = 4

// lookProcessors counts the processors. Daemons poll, so two daemons need two processors.
func lookProcessors(_ context.Context, s *System) Finding {
	if s.CPUs < 2 {
		return weaker("1", "switch and hosts share it: racks work, latencies are those of the scheduler", "give the machine 2 processors")
	}
	means := "the switch has one to itself, hosts have the others"
	if s.CPUs <= FewProcessors {
		means += "; `rdmalab up --compact` needs no more than one process"
	}
	return good(strconv.Itoa(s.CPUs), means)
}

func lookFolder(_ context.Context, s *System) Finding {
	if err := s.Writable(stateParent); err != nil {
		fix := asRoot
		if s.Euid == 0 {
			fix = "mount -t tmpfs tmpfs " + stateParent
		}
		return lacking(stateParent+": "+err.Error(), "a rack keeps sockets, logs and pins there", fix)
	}
	return good(stateParent+" can be written to", "a rack keeps sockets, logs and pins there")
}

// lookSettings checks that a rack can set what belongs to its own network namespaces. A container engine may
// mount the settings read-only. The rights of the folder say nothing of its files.
func lookSettings(_ context.Context, s *System) Finding {
	const means = "a rack sets IPv6 and ARP of its own network namespaces there"
	if err := s.Writable(nl.Settings + "/ipv4/ip_forward"); err != nil {
		fix := asRoot
		if s.Euid == 0 {
			fix = "mount -o remount,rw /proc/sys; in a container: docker run --security-opt systempaths=unconfined, or --privileged"
		}
		return lacking(nl.Settings+": "+err.Error(), means, fix)
	}
	return good(nl.Settings+" can be written to", means)
}

func lookNamespaces(_ context.Context, s *System) Finding {
	const means = "every host of a rack has its own namespaces"
	var names, lost []string
	var why error
	for _, n := range []struct {
		name string
		flag int
	}{{"net", unix.CLONE_NEWNET}, {"mount", unix.CLONE_NEWNS}, {"pid", unix.CLONE_NEWPID}, {"uts", unix.CLONE_NEWUTS}, {"ipc", unix.CLONE_NEWIPC}} {
		if err := s.Unshare(n.flag); err != nil {
			lost, why = append(lost, n.name), err
			continue
		}
		names = append(names, n.name)
	}
	if len(lost) == 0 {
		return good(strings.Join(names, ", "), means)
	}
	fix := asRoot
	switch {
	case s.Euid == 0 && errors.Is(why, unix.EPERM):
		fix = "in a container: docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined …"
	case s.Euid == 0:
		fix = "sysctl -w user.max_net_namespaces=1000; if that does not help: a kernel with CONFIG_NAMESPACES"
	}
	return lacking(fmt.Sprintf("no %s: %v", strings.Join(lost, ", "), why), means, fix)
}

// lookUser checks for user namespaces. Racks do not use them, but rootless container engines do.
func lookUser(_ context.Context, s *System) Finding {
	const means = "racks do not use them; rootless podman and `unshare -rmn` need them"
	const limit = "/proc/sys/user/max_user_namespaces"
	b, err := s.ReadFile(limit)
	switch text := strings.TrimSpace(string(b)); {
	case errors.Is(err, fs.ErrNotExist):
		return lacking("not in this kernel", means, "a kernel with CONFIG_USER_NS")
	case err != nil:
		return weaker("unknown: "+err.Error(), means, "cat "+limit)
	case text == "0":
		return lacking("switched off", means, "sysctl -w user.max_user_namespaces=10000")
	default:
		return good("up to "+text, means)
	}
}

func lookVeth(_ context.Context, s *System) Finding {
	const means = "a veth pair is the link between a host and the switch"
	switch err := s.Links().Err; {
	case errors.Is(err, nl.ErrPrivilege):
		return lacking("not tried: no privilege", means, asRoot)
	case err != nil:
		return lacking(err.Error(), means, "modprobe veth")
	}
	return good("a pair between two namespaces", means)
}

func lookPacket(_ context.Context, s *System) Finding {
	const means = "NICs and switch send and receive raw frames by AF_PACKET"
	l := s.Links()
	switch {
	case l.Err != nil:
		return lacking("not tried: no veth", means, withLink(l))
	case l.PortErr != nil:
		return lacking(l.PortErr.Error(), means, "modprobe af_packet; in a container: --cap-add NET_RAW --cap-add NET_ADMIN")
	}
	return good("on "+l.Port.Ifname+", MTU "+strconv.Itoa(l.Port.MTU), means)
}

func lookRing(_ context.Context, s *System) Finding {
	l := s.Links()
	switch {
	case l.Err != nil || l.PortErr != nil:
		return lacking("not tried: no packet socket", "frames are received in shared memory", withLink(l))
	case !strings.HasPrefix(l.Port.Receive, "ring"):
		return weaker(l.Port.Receive+notes(l), "a system call for each burst received: slower", "a kernel with CONFIG_PACKET; see `rdmalab logs`")
	}
	return good("TPACKET_V2 "+l.Port.Receive, "frames are received without a system call")
}

// lookBypass checks whether sent frames bypass the kernel's queueing layer. If they do not, the
// port works, and one of its notes says so.
func lookBypass(_ context.Context, s *System) Finding {
	l := s.Links()
	if l.Err != nil || l.PortErr != nil {
		return lacking("not tried: no packet socket", "frames are sent straight to the driver", withLink(l))
	}
	for _, note := range l.Port.Notes {
		if strings.Contains(note, "queueing discipline") {
			return weaker(note, "a queue in the kernel for each frame sent: slower", "a kernel with PACKET_QDISC_BYPASS, Linux 3.14 or newer")
		}
	}
	return good("PACKET_QDISC_BYPASS, sendmmsg", "frames are sent straight to the driver, many by one system call")
}

func lookSilencer(_ context.Context, s *System) Finding {
	l := s.Links()
	const fix = "Linux 6.6 or newer; in a container also --cap-add BPF (or SYS_ADMIN)"
	switch {
	case l.Err != nil || l.PortErr != nil:
		return lacking("not tried: no packet socket", "keeps the kernel from answering RoCEv2", withLink(l))
	case l.Port.Silencer == "tcx":
		return good("bpf program at tcx ingress", "the kernel does not answer RoCEv2, and does no work for it")
	case l.Port.Silencer == "socket":
		return weaker("sockets on UDP 4791"+notes(l), "the kernel does not answer RoCEv2, but handles every packet: slower", fix)
	}
	return weaker("none"+notes(l), "the kernel answers RoCEv2 with ICMP port unreachable, which peers may believe", fix)
}

func notes(l Links) string {
	if len(l.Port.Notes) == 0 {
		return ""
	}
	return " (" + strings.Join(l.Port.Notes, "; ") + ")"
}
