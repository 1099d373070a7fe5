package spec

import "path/filepath"

// StateRoot is the folder that contains a folder for each running rack.
const StateRoot = "/run/rdmalab"

// SwitchName is the name of the switch as a node: in the paths of its namespace, socket, log and
// cgroup.
const SwitchName = "switch"

// Paths are the places of one rack's run-time state. All are below Dir, a tmpfs that only this rack
// uses, so that one umount removes them.
type Paths struct{ Dir string }

// PathsOf returns the places of the rack called name.
func PathsOf(name string) Paths { return Paths{filepath.Join(StateRoot, name)} }

// Netns returns the pin of a node's network namespace.
func (p Paths) Netns(node string) string { return filepath.Join(p.Dir, "netns", node) }

// Socket returns a node's control socket.
func (p Paths) Socket(node string) string { return filepath.Join(p.Dir, "sock", node+".sock") }

// Links returns the socket at which hosts get the memory of their links from the switch, with
// CableMemory.
func (p Paths) Links() string { return filepath.Join(p.Dir, "sock", "links") }

// Verbs returns the socket through which programs on a host use its NIC.
func (p Paths) Verbs(node string) string { return filepath.Join(p.Dir, "sock", node+".verbs") }

// VerbsTree returns the folder in which unmodified RDMA programs on a host find its NIC, instead of
// in /sys.
func (p Paths) VerbsTree(node string) string { return filepath.Join(p.Dir, "sock", node+".sys") }

// VerbsLibrary returns the library that is preloaded into unmodified programs.
func (p Paths) VerbsLibrary() string { return filepath.Join(p.Dir, "sock", "librdmalab-verbs.so") }

// VerbsPreload returns a link to VerbsLibrary with the name of a node. If the library is preloaded
// by this name, it finds the node's socket and tree in its own folder, wherever the folder is
// mounted. It then needs no environment variables.
func (p Paths) VerbsPreload(node string) string { return filepath.Join(p.Dir, "sock", node+".so") }

// EnvVerbs is the environment variable that tells a program on a host the path of its socket,
// Paths.Verbs.
const EnvVerbs = "RDMALAB_VERBS"

// Log returns a node's log file.
func (p Paths) Log(node string) string { return filepath.Join(p.Dir, "log", node+".log") }

// OneRMA returns the socket through which programs on a host use its 1RMA NIC.
func (p Paths) OneRMA(node string) string { return filepath.Join(p.Dir, "sock", node+".onerma") }

// EnvOneRMA is the environment variable that tells a program on a host the path of that socket.
const EnvOneRMA = "RDMALAB_ONERMA"

// Incarnation returns the file with the number of the last incarnation of a host's 1RMA NIC.
func (p Paths) Incarnation(node string) string {
	return filepath.Join(p.Dir, "sock", node+".incarnation")
}

// Spec returns the file with the resolved rack description, as JSON.
func (p Paths) Spec() string { return filepath.Join(p.Dir, "rack.json") }

// Record returns the file of the switch's journal.
func (p Paths) Record() string { return filepath.Join(p.Dir, "switch.record") }

// Program returns the file that names the switch program. It exists only if an operator has loaded
// another program than that of the rack's description.
func (p Paths) Program() string { return filepath.Join(p.Dir, "switch.program") }

// Lock returns the file whose flock a program holds while it changes the rack. The file is beside
// Dir, because the tmpfs at Dir is made and removed while the lock is held.
func (p Paths) Lock() string { return p.Dir + ".lock" }

// Ready returns the file that marks a rack whose bring-up is complete.
func (p Paths) Ready() string { return filepath.Join(p.Dir, "ready") }

// Hosts returns the file that every host sees as /etc/hosts.
func (p Paths) Hosts() string { return filepath.Join(p.Dir, "hosts") }

// Crashed returns the file that marks a node that a command has crashed.
func (p Paths) Crashed(node string) string { return filepath.Join(p.Dir, "crashed", node) }

// Guests returns the folder with a file for each guest.
func (p Paths) Guests() string { return filepath.Join(p.Dir, "guests") }

// Guest returns the file of a guest.
func (p Paths) Guest(name string) string { return filepath.Join(p.Guests(), name+".json") }

// Timer returns the file with the process ID of a timer, on machines without cgroup2.
func (p Paths) Timer(name string) string { return filepath.Join(p.Dir, "timer", name) }
