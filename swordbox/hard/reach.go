package hard

import "github.com/rdmalab/rdmalab/softrnic/wire"

// A client's NIC asks again for what it has not been answered, and a server's answers that. Both are behind what is new by no
// more than was ever outstanding, so a lane notes the most that it has seen. What names a PSN further back is of another
// connection, whose queue pair got the number of one that is gone: to a map of PSNs that looks back over a quarter of all
// numbers it would be an old acquaintance, and pass for a duplicate that changes nothing, while the server executes it.

// slack is how much more than what was ever outstanding may be asked for again.
const slack = 4096

// reaches notes what is outstanding on the own connection.
func (l *lane) reaches() {
	if d := wire.Diff(l.psns.own, l.acked); d > l.far {
		l.far = d
	}
}

// isFar reports whether a PSN is further behind another one than anything that its sender may still speak of.
func (l *lane) isFar(psn, newest wire.PSN) bool { return wire.Diff(newest, psn) > slack+2*l.far }
