package rackfile

import (
	"path/filepath"
	"strconv"
	"strings"
)

// StateRoot is the folder that has a folder for each running rack.
const StateRoot = "/run/rdmalab"

// SwitchName is the name of the switch as a node: in the paths of its namespace, socket, log and
// cgroup.
const SwitchName = "switch"

// DaemonsName is the name of the process that runs all nodes of a rack with DaemonsShared, in the names
// of its log and its control socket.
const DaemonsName = "daemons"

// Paths are the places of the state of one running rack. All except the lock are below Dir, a tmpfs
// for this rack alone, so that one umount removes them.
type Paths struct{ Dir string }

// PathsOf returns the Paths of the rack called name.
func PathsOf(name string) Paths { return Paths{filepath.Join(StateRoot, name)} }

// ClientOf returns the Paths of the client of a rack on several machines: the place from which `rdmalab
// up` was called. It has the description, the secret, and the control sockets of all nodes, which ssh
// forwards. It is beside PathsOf, because the client may be one of the machines.
func ClientOf(name string) Paths { return Paths{filepath.Join(StateRoot, name+ClientSuffix)} }

// ClientSuffix is what follows the name of a rack in the name of its client's folder.
const ClientSuffix = ".client"

// EnvSlice is the environment variable that is set for commands that a client runs on a machine by ssh:
// they work on the slice of this machine, also if the machine is a client, too.
const EnvSlice = "RDMALAB_SLICE"

// Secret returns the file with the secret of a rack on several machines, which only root may read.
func (p Paths) Secret() string { return filepath.Join(p.Dir, "secret") }

// SSH returns the socket of the connection of ssh to a machine.
func (p Paths) SSH(machine string) string { return filepath.Join(p.Dir, "ssh", machine) }

// Netns returns the pin of a node's network namespace: a file that keeps the namespace alive.
func (p Paths) Netns(node string) string { return filepath.Join(p.Dir, "netns", MachineOf(node)) }

// Outside returns the pin of the machine's own network namespace, from which trunks to other machines go out;
// and in which its network devices are. It exists if the rack has several machines, or devices.
func (p Paths) Outside() string { return filepath.Join(p.Dir, "outside") }

// Socket returns the control socket of a node, or of a further NIC of a host.
func (p Paths) Socket(node string) string { return filepath.Join(p.Dir, "sock", fileOf(node)+".sock") }

// fileOf returns the name of a node, or of a NIC, as a part of the name of a file. Names of hosts have no
// dot.
func fileOf(node string) string { return strings.ReplaceAll(node, NICMark, ".") }

// Links returns the socket at which the switch gives hosts the shared memory of their links, with
// CableMemory.
func (p Paths) Links() string { return filepath.Join(p.Dir, "sock", "links") }

// Verbs returns the socket through which programs on a host use its first NIC.
func (p Paths) Verbs(node string) string { return filepath.Join(p.Dir, "sock", node+".verbs") }

// VerbsOf returns the socket through which programs use a NIC. That of NIC 1 of a host is Verbs and a
// "1" behind it; the preloaded library relies on that.
func (p Paths) VerbsOf(h *Host) string {
	if h.IsNIC() {
		return p.Verbs(h.NIC.Of) + strconv.Itoa(h.NIC.Nth)
	}
	return p.Verbs(h.Name)
}

// Netlink returns the socket of a host that answers for NETLINK_RDMA of the kernel. The preloaded library
// finds it by the name of Verbs, with another suffix.
func (p Paths) Netlink(node string) string {
	return filepath.Join(p.Dir, "sock", MachineOf(node)+".nldev")
}

// VerbsTree returns the folder in which unmodified RDMA programs on a host find its NIC, instead of
// in /sys.
func (p Paths) VerbsTree(node string) string {
	return filepath.Join(p.Dir, "sock", MachineOf(node)+".sys")
}

// VerbsLibrary returns the library that unmodified RDMA programs preload.
func (p Paths) VerbsLibrary() string { return filepath.Join(p.Dir, "sock", "librdmalab-verbs.so") }

// VerbsProviders returns the folder with a provider for libibverbs, under the names of all versions.
func (p Paths) VerbsProviders() string { return filepath.Join(p.Dir, "sock", "providers") }

// VerbsPreload returns a symbolic link to VerbsLibrary that is named after a node. If a program
// preloads the library by this name, the library finds the node's socket (Verbs) and its files in
// place of /sys (VerbsTree) in the folder of the link, wherever that folder is mounted. The program
// then needs no environment variables for them.
func (p Paths) VerbsPreload(node string) string {
	return filepath.Join(p.Dir, "sock", MachineOf(node)+".so")
}

// EnvVerbs is the environment variable that tells a program on a host the path of its socket,
// Paths.Verbs.
const EnvVerbs = "RDMALAB_VERBS"

// Log returns a node's log file.
func (p Paths) Log(node string) string { return filepath.Join(p.Dir, "log", MachineOf(node)+".log") }

// OneRMA returns the socket through which programs on a host use its 1RMA NIC.
func (p Paths) OneRMA(node string) string { return filepath.Join(p.Dir, "sock", node+".onerma") }

// EnvOneRMA is the environment variable that tells a program on a host the path Paths.OneRMA.
const EnvOneRMA = "RDMALAB_ONERMA"

// Incarnation returns the file with the number of the latest incarnation of a host's 1RMA NIC.
func (p Paths) Incarnation(node string) string {
	return filepath.Join(p.Dir, "sock", node+".incarnation")
}

// Spec returns the file with the resolved rack description, as JSON.
func (p Paths) Spec() string { return filepath.Join(p.Dir, "rack.json") }

// Record returns the file of a switch's journal, which the switch reads after a crash.
func (p Paths) Record(name string) string { return filepath.Join(p.Dir, name+".record") }

// Program returns the file that names the program of a switch. It exists only if an operator has loaded
// another program than the one in the rack's description.
func (p Paths) Program(name string) string { return filepath.Join(p.Dir, name+".program") }

// TrunkFaults returns the file with the fault rules on a switch's trunks, which it has again when it is
// started again.
func (p Paths) TrunkFaults(name string) string { return filepath.Join(p.Dir, name+".faults") }

// Devices returns the file that says how the rack's network devices were before, for those who give them
// back.
func (p Paths) Devices() string { return filepath.Join(p.Dir, "devices.json") }

// Cut returns the file that exists while a trunk to another machine is cut at this machine's end, or the
// port of a device.
func (p Paths) Cut(trunk string) string { return filepath.Join(p.Dir, "cut", trunk) }

// Exercises returns the folder with the state and the captures of exercises (package exercise). It exists
// if one was prepared on the rack.
func (p Paths) Exercises() string { return filepath.Join(p.Dir, "exercises") }

// Lock returns the file whose flock a program holds while it changes the rack. The file is beside
// Dir, because the tmpfs at Dir is made and removed while the lock is held.
func (p Paths) Lock() string { return p.Dir + LockSuffix }

// LockSuffix is what follows the name of a rack in the name of its lock file.
const LockSuffix = ".lock"

// Ready returns the file that exists if the rack has come up completely.
func (p Paths) Ready() string { return filepath.Join(p.Dir, "ready") }

// Hosts returns the file that every host of the rack sees as /etc/hosts.
func (p Paths) Hosts() string { return filepath.Join(p.Dir, "hosts") }

// Crashed returns the file that exists if a command has crashed the node.
func (p Paths) Crashed(node string) string { return filepath.Join(p.Dir, "crashed", MachineOf(node)) }

// Broken returns the file that says why the NIC of a host in a compact rack has panicked.
func (p Paths) Broken(host string) string { return filepath.Join(p.Dir, "broken", MachineOf(host)) }

// Unfinished returns the file that exists while a host is being added to the rack, or removed from
// it. It stays if the program that does that fails or is killed.
func (p Paths) Unfinished(node string) string { return filepath.Join(p.Dir, "unfinished", node) }

// Guests returns the folder that has a file for each guest (see package guests).
func (p Paths) Guests() string { return filepath.Join(p.Dir, "guests") }

// Guest returns the file of a guest.
func (p Paths) Guest(name string) string { return filepath.Join(p.Guests(), name+".json") }

// Timer returns the file with a timer's process ID and start time, on machines without cgroup2.
func (p Paths) Timer(name string) string { return filepath.Join(p.Dir, "timer", name) }
