package layout

import "math/bits"

// View is a word that each member of the store has. It says which memory servers are members. A
// master changes it in two steps. First it writes a view in the state Preparing to all servers that
// remain members. When the master has made their replicas equal, it writes the same view in the
// state Settled.
//
//	bits 0 to 15 members | bits 16 to 19  state | bit 20 mastered | bit 21 moved | bits 32 to 63 epoch
//
// The epoch grows with each change. The word of a server that has lost its memory is 0.
type View uint64

// ViewState is the state of a change of the members.
type ViewState uint8

// States of a view.
const (
	NoView    ViewState = iota // the memory is not formatted, or was lost
	Preparing                  // a master repairs the replicas: clients wait
	Settled                    // clients use the members
	Gone                       // too many servers were lost: the store has ended
)

const (
	viewState    = 16
	viewMastered = 1 << 20
	viewMoved    = 1 << 21
	viewEpoch    = 32
)

// Offsets of the words of membership, on each server.
const (
	// JoinWord has the epoch of the view with which the server became a member again; 0 means that
	// the server has been a member since the store was formatted.
	JoinWord = SuperblockLen
	// StandbyWord has the Beat of the standby (a value that changes with each sign of life).
	// SeenWord has the last View that the standby knows.
	StandbyWord = SuperblockLen + 24
	SeenWord    = SuperblockLen + 32
	// ReignWord has the Beat of the master, which shows that the master is alive. The client number
	// in it is that of the standby. The master may need this standby's agreement before it goes on
	// with fewer servers (see fusee.Standby). 0 means that there is no standby.
	ReignWord = SuperblockLen + 40
	// ViewWord has the View.
	ViewWord = SuperblockLen + 48
	// MasterWord has the client number of the last master that has claimed the server.
	MasterWord = SuperblockLen + 56
)

// FirstView returns the view of a newly formatted store: all servers are members.
func FirstView(servers int) View { return View(1<<servers-1).in(Settled) | 1<<viewEpoch }

func (v View) in(s ViewState) View { return v&^(15<<viewState) | View(s)<<viewState }

// Has reports whether a server is a member.
func (v View) Has(server int) bool { return v>>server&1 == 1 && server < MaxServers }

// Meets reports whether at least one server is a member of both views.
func (v View) Meets(w View) bool { return v&w&(1<<viewState-1) != 0 }

// Same reports whether v and w have the same members.
func (v View) Same(w View) bool { return (v^w)&(1<<viewState-1) == 0 }

// Epoch returns the number of the change that has made the view.
func (v View) Epoch() uint32 { return uint32(v >> viewEpoch) }

// WithEpoch returns the view with another epoch.
func (v View) WithEpoch(epoch uint32) View { return v&(1<<viewEpoch-1) | View(epoch)<<viewEpoch }

// State returns how far the change of the members that led to this view has got.
func (v View) State() ViewState { return ViewState(v >> viewState & 15) }

// Mastered reports whether a master has ever changed the view. If so, a client whose memory server
// does not answer waits until a master has removed that server.
func (v View) Mastered() bool { return v&viewMastered != 0 }

// Next returns the view that a master prepares in place of v. Its members are the members of v for
// which keep returns true.
func (v View) Next(keep func(server int) bool) View {
	next := View(v.Epoch()+1)<<viewEpoch | viewMastered
	for i := range MaxServers {
		if v.Has(i) && keep(i) {
			next |= 1 << i
		}
	}
	if v.First(0, MaxServers, MaxServers) != next.First(0, MaxServers, MaxServers) || v.State() == Preparing && v.Moved() {
		next |= viewMoved
	}
	return next.in(Preparing)
}

// Moved reports whether the primary of the index is on another server than in the last view that
// was settled.
func (v View) Moved() bool { return v&viewMoved != 0 }

// With returns the view with one more member.
func (v View) With(server int) View { return v | 1<<(server%MaxServers) }

// As returns the view in another state.
func (v View) As(s ViewState) View {
	if s == Settled {
		v &^= viewMoved
	}
	return v.in(s)
}

// Valid reports whether v, a word that was read from a server, can be a view of a store with that
// many servers.
func (v View) Valid(servers int) bool { return v.State() <= Gone && v&(1<<viewState-1)>>servers == 0 }

// Members returns the number of members.
func (v View) Members() int { return bits.OnesCount64(uint64(v & (1<<viewState - 1))) }

// Newer reports whether v is a later view than w, or a later state of the same change.
func (v View) Newer(w View) bool {
	return v.Epoch() > w.Epoch() || v.Epoch() == w.Epoch() && v.State() > w.State()
}

// First returns the first member among n servers, from server `from` on; -1 means that none of them
// is a member. The store has `all` servers, and server 0 follows the last one.
func (v View) First(from, n, all int) int {
	for j := range n {
		if i := (from + j) % all; v.Has(i) {
			return i
		}
	}
	return -1
}

// Survives reports whether the store survives with the members of view v: they have a replica of
// the index, and a replica of each object.
func (s *Shape) Survives(v View) bool {
	if v.First(0, s.IndexReplicas, s.Servers) < 0 {
		return false
	}
	for i := range s.Servers {
		if v.First(i, s.Replicas, s.Servers) < 0 {
			return false
		}
	}
	return true
}
