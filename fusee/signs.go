package fusee

import (
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// contact says whether a master reaches any server. silent is true if no server has answered in the
// last round of probe; last is when the last READ that any server has answered began. forgiven is
// true if the leases of all servers have begun again after such a silence (see regained), and not all members
// have answered since then. While forgiven is true, the leases do not begin again: otherwise a link
// that goes down and up all the time would protect a server that has crashed.
//
// rounds counts the rounds in which all members have answered, see Rounds.
type contact struct {
	silent, forgiven bool
	last             clock.Time
	rounds           atomic.Uint64
}

// regained is called when a server has answered a READ that began at the time asked. It returns true
// if the master was cut off from all servers before: then the silence of the others proves nothing,
// and the caller begins their leases again.
func (x *contact) regained(asked clock.Time, lease time.Duration) bool {
	cut := x.silent && !x.forgiven && asked > x.last.Add(lease)
	x.silent, x.last = false, asked
	x.forgiven = x.forgiven || cut
	return cut
}

// signs has, by server, what a master knows about whether the server is alive.
type signs []sign

// sign is what a master knows about whether a server is alive.
type sign struct {
	// since is when the master sent the last READ that got an answer, or when it began to watch the
	// server. failed counts the failed READs since then.
	since  clock.Time
	failed int
	// lost is true if the server has lost its memory and runs again. dead is true if the server has
	// been silent for so many leases that the master takes it for crashed; waited is the number of
	// these leases. kept is true if the server was restarted with its memory (see reborn), and no later
	// view was made since then.
	lost, dead, kept bool
	waited           int
	// claimed is true if this master has claimed the server, which then executes no request of the
	// former master.
	claimed bool
}

// alive reports whether the server has its memory and does not count as crashed.
func (s *sign) alive() bool { return !s.lost && !s.dead }

// watch begins the leases of all servers again.
func (s signs) watch(now clock.Time) {
	for i := range s {
		s[i].since, s[i].failed = now, 0
	}
}

// revive counts all servers as alive that were taken for crashed.
func (s signs) revive() {
	for i := range s {
		s[i].dead = false
	}
}

// pardon does the same, except for servers that were restarted with their memory: these need a later
// view.
func (s signs) pardon() {
	for i := range s {
		s[i].dead = s[i].dead && s[i].kept
	}
}

// doubts is called when the store is lost without the servers that were taken for crashed. Some of
// them were perhaps silent for less than lastLeases, because the store did not need them then.
// doubts counts these as alive again until lastLeases have passed, because perhaps only the network
// was down. It reports whether there are such servers.
func (s signs) doubts() (any bool) {
	for i := range s {
		if one := &s[i]; one.dead && one.waited < lastLeases {
			one.dead, any = false, true
		}
	}
	return any
}
