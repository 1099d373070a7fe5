package executor

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Constants of congestion control, which is algorithm 1 of the 1RMA paper.
const (
	additive        = 0.25 // a window grows by this number of operations in a round trip
	beta            = 0.8  // how strongly a delay above the target makes a window smaller
	leastFactor     = 0.5  // the smallest factor by which a delay above the target multiplies a window
	timeoutDecrease = 0.1  // a failure multiplies a window by this factor
)

// Config has the executor's parameters, for which the paper gives no values. Zero means the
// default.
type Config struct {
	// RTT is the round-trip time of the rack; required.
	RTT time.Duration
	// LocalTarget is the target of the issue delay; 0 means RTT / 2. RemoteTarget is the target of
	// the time that a READ takes after its issue delay; 0 means 1.5 RTT. A WRITE takes two round
	// trips instead of one, so its target is twice RemoteTarget.
	LocalTarget, RemoteTarget time.Duration
	// Least and Most are the bounds of a window, First is its first value, all in operations; 0
	// means 0.01, 64 and 1.
	Least, Most, First float64
	// Policy is the name of what sets the windows; "" means Published.
	Policy string
	// TotalDelay selects the policy of the paper's figure 15, unless Policy is set: the remote windows
	// follow the whole time of an operation, including its issue delay. The target of this time is
	// LocalTarget plus RemoteTarget. The local window stays at its upper bound.
	TotalDelay bool
	// Burst is true if a window of 1 or more sets no pace, and only bounds the operations in
	// flight. Burst is for real machines, whose timers are coarser than the time between two
	// operations. In the paper, too, only windows below 1 set a pace.
	Burst bool
}

func (c Config) withDefaults() (Config, error) {
	if c.RTT <= 0 {
		return c, fmt.Errorf("onerma executor: RTT %v; give the round trip of the rack", c.RTT)
	}
	c.LocalTarget = cmp.Or(c.LocalTarget, c.RTT/2)
	c.RemoteTarget = cmp.Or(c.RemoteTarget, 3*c.RTT/2)
	c.Least = cmp.Or(c.Least, 0.01)
	c.Most = cmp.Or(c.Most, 64)
	c.First = cmp.Or(c.First, 1)
	if c.TotalDelay {
		c.Policy = cmp.Or(c.Policy, TotalDelay)
	}
	c.Policy = cmp.Or(c.Policy, Published)
	if policies[c.Policy] == nil {
		return c, fmt.Errorf("onerma executor: no congestion policy %.40q: use one of %s", c.Policy, strings.Join(Policies(), ", "))
	}
	if c.LocalTarget < 0 || c.RemoteTarget < 0 || c.Least < 0.001 || c.Most < 1 || c.First < c.Least || c.First > c.Most {
		return c, fmt.Errorf("onerma executor: targets %v and %v, windows from %g to %g, at first %g: give positive times, and 0.001 ≤ least ≤ first ≤ most, most at least 1",
			c.LocalTarget, c.RemoteTarget, c.Least, c.Most, c.First)
	}
	return c, nil
}

// remoteTarget returns the target of the time that an operation takes after its issue delay.
func (c *Config) remoteTarget(op onerma.Op) time.Duration {
	if op == onerma.Write {
		return 2 * c.RemoteTarget
	}
	return c.RemoteTarget
}

// Window is a congestion window: how many operations may be in flight, and how fast they follow one another.
type Window struct {
	// Size is in operations. After each call of the policy the executor puts it between Config.Least and
	// Config.Most.
	Size float64
	// Own is for the policy, which may keep there what it remembers of the window.
	Own      any
	flying   int        // operations in flight
	next     clock.Time // when the pace allows another operation
	lastDrop clock.Time // time of the last decrease, if dropped is true
	dropped  bool
}

// succeeded updates the window after an operation whose delay was d.
func (w *Window) succeeded(now clock.Time, c *Config, d, target time.Duration) {
	switch {
	case d < target && w.Size >= 1:
		w.Size = min(w.Size+additive/w.Size, c.Most)
	case d < target:
		w.Size = min(w.Size+additive, c.Most)
	default:
		w.decrease(now, c, max(1-beta*float64(d-target)/float64(d), leastFactor))
	}
}

func (w *Window) failed(now clock.Time, c *Config) { w.decrease(now, c, timeoutDecrease) }

// decrease multiplies the window by a factor. It does so at most once in a round-trip time.
func (w *Window) decrease(now clock.Time, c *Config, factor float64) {
	if w.dropped && now.Sub(w.lastDrop) < c.RTT {
		return
	}
	w.Size, w.lastDrop, w.dropped = max(w.Size*factor, c.Least), now, true
}

// bound puts the size between its bounds; one that is no number becomes the least.
func (w *Window) bound(c *Config) {
	if !(w.Size >= c.Least) {
		w.Size = c.Least
	}
	w.Size = min(w.Size, c.Most)
}

// room reports whether the window allows another operation in flight.
func (w *Window) room() bool { return w.flying < int(max(1, w.Size)) }

// issued counts an issued operation, and sets when the pace allows the next one.
func (w *Window) issued(now clock.Time, c *Config, cwnd float64) {
	w.flying++
	if c.Burst && cwnd >= 1 {
		return
	}
	w.next = max(w.next, now).Add(time.Duration(float64(c.RTT) / cwnd))
}
