package afpacket

import "golang.org/x/sys/unix"

// merging reports whether a port makes super-frames of the packets that it sends.
//
// Some interfaces refuse them and say so (EINVAL, EMSGSIZE, EOPNOTSUPP): then it ends for ever. An
// interface whose kernel cannot segment in its place answers ENOBUFS, as it does to every frame
// while the other end of a link is down: the port then sends the refused packets one by one, and if
// that works, merging rests for a while.
type merging struct {
	// limit is the longest frame that is merged, in bytes; 0: none is.
	limit int
	// rest is how many more Sends go packet by packet.
	rest int
}

// restSends is how many Sends merging rests for: few, because a queue that was full for a moment
// answers ENOBUFS, too; enough to make an attempt that fails cheap.
const restSends = 64

// begin returns the limit for one Send.
func (m *merging) begin() (limit int) {
	if m.rest > 0 {
		m.rest--
		return 0
	}
	return m.limit
}

// refused is called when the interface did not take a super-frame. It reports whether the packets
// are to be sent one by one.
func (m *merging) refused(errno unix.Errno) (alone bool) {
	if errno == unix.EINVAL || errno == unix.EMSGSIZE || errno == unix.EOPNOTSUPP {
		m.limit = 0
		return true
	}
	return errno == unix.ENOBUFS
}

// pause is called when the interface has taken single packets of a super-frame that it refused.
func (m *merging) pause() { m.rest = restSends }
