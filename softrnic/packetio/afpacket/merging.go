package afpacket

import "golang.org/x/sys/unix"

// merging decides whether a port merges the packets that it sends into super-frames.
//
// If an interface refuses a super-frame with EINVAL, EMSGSIZE or EOPNOTSUPP, the port never merges
// again. An interface whose kernel cannot segment super-frames answers ENOBUFS, as it does to every
// frame while the other end of a link is down. Then the port sends the refused packets one by one;
// if that works, it does not merge for a while.
type merging struct {
	// limit is the length of the longest frame that is merged, in bytes; 0 means none.
	limit int
	// rest is the number of further calls of Send that do not merge, after the interface has
	// refused a super-frame with ENOBUFS.
	rest int
}

// restSends is how many calls of Send merge no packets after the interface has refused a
// super-frame with ENOBUFS and accepted its packets one by one. It is small, because an interface
// whose queue was full for a moment also answers ENOBUFS. It is large enough that attempts to merge
// which fail again and again cost little.
const restSends = 64

// begin is called at the beginning of a Send. It returns the length of the longest frame that this
// Send may merge, in bytes; 0 means that it must merge none.
func (m *merging) begin() (limit int) {
	if m.rest > 0 {
		m.rest--
		return 0
	}
	return m.limit
}

// refused is called when the interface has refused a super-frame. It reports whether the port must
// send its packets one by one.
func (m *merging) refused(errno unix.Errno) (alone bool) {
	if errno == unix.EINVAL || errno == unix.EMSGSIZE || errno == unix.EOPNOTSUPP {
		m.limit = 0
		return true
	}
	return errno == unix.ENOBUFS
}

// pause is called when the interface has refused a super-frame and accepted its packets one by one.
// The next restSends calls of Send then merge no packets.
func (m *merging) pause() { m.rest = restSends }
