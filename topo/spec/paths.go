package spec

import "path/filepath"

// StateRoot is the folder that holds one folder a running rack.
const StateRoot = "/run/rdmalab"

// SwitchName is the name of the switch as a node: its namespace, socket, log and cgroup.
const SwitchName = "switch"

// Paths are the places of one rack's run-time state. Everything is below Dir, a tmpfs of the rack's own, so that
// one umount removes it.
type Paths struct{ Dir string }

// PathsOf returns the places of the rack called name.
func PathsOf(name string) Paths { return Paths{filepath.Join(StateRoot, name)} }

// Netns is the pin of a node's network namespace.
func (p Paths) Netns(node string) string { return filepath.Join(p.Dir, "netns", node) }

// Socket is a node's control socket.
func (p Paths) Socket(node string) string { return filepath.Join(p.Dir, "sock", node+".sock") }

// Log is a node's log file.
func (p Paths) Log(node string) string { return filepath.Join(p.Dir, "log", node+".log") }

// Spec is the resolved rack description, as JSON.
func (p Paths) Spec() string { return filepath.Join(p.Dir, "rack.json") }

// Lock is the file whose flock is held while the rack is being changed.
func (p Paths) Lock() string { return filepath.Join(p.Dir, "lock") }
