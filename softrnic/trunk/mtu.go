package trunk

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Bounds of the path MTU in bytes, and times of its search.
const (
	leastMTU = 576
	// MaxMTU is the longest path MTU that is used.
	MaxMTU = 9000
	// mtuTries is how many padded probes of a size must be lost, one each Interval, until the size counts as
	// too long.
	mtuTries = 3
	// A size that was found is looked at again after each verifyMTU, a longer one tried after each raiseMTU.
	verifyMTU = time.Second
	raiseMTU  = time.Minute

	// IP and UDP headers.
	overIPv4, overIPv6 = 28, 48

	minPiece = leastMTU - overIPv6 - Overhead
	maxPiece = MaxMTU - overIPv4 - Overhead
	// MaxDatagram is the length of the longest datagram of a trunk in bytes.
	MaxDatagram = maxPiece + Overhead
)

// mtuSteps are the sizes that the search tries, from the longest on: those of usual links, and of usual
// tunnels over these.
var mtuSteps = [...]int{MaxMTU, 8900, 4096, 1500, 1480, 1450, 1400, 1280, 1024, leastMTU}

// pathMTU finds the longest datagrams that reach the peer (like RFC 8899, with fixed steps). All sizes are
// those of IP packets.
type pathMTU struct {
	link   int // what the machine's own link takes
	limit  int // what the machine's own kernel lets pass; link until it has refused a datagram
	good   int // what has reached the peer
	trying int // 0: nothing is tried
	tries  int // probes of this size that were sent
	due    clock.Time
	raise  clock.Time // when a longer size than good is tried next
}

func (m *pathMTU) init(limit int) {
	m.link, m.good = min(max(limit, leastMTU), MaxMTU), leastMTU
	m.limit = m.link
}

// search begins again, with the longest.
func (m *pathMTU) search(now clock.Time) { m.trying, m.tries, m.due = m.limit, 0, now }

// tick returns the size of the padded probe that is due; 0 if none is.
func (m *pathMTU) tick(now clock.Time) int {
	if now < m.due {
		return 0
	}
	switch {
	case m.trying == 0 && m.good < m.link && now >= m.raise:
		m.limit = m.link // the kernel says it again if the path is as short as before
		m.search(now)
		m.raise = now.Add(raiseMTU)
	case m.trying == 0:
		m.trying, m.tries = m.good, 0
	case m.tries < mtuTries:
	case m.trying <= m.good: // what has reached the peer no longer does
		m.good = leastMTU
		m.search(now)
	default:
		m.shorter(now)
	}
	if m.trying == 0 {
		return 0
	}
	m.tries++
	m.due = now.Add(Interval)
	return m.trying
}

// shorter goes on with the next step below the size that was tried.
func (m *pathMTU) shorter(now clock.Time) {
	for _, s := range mtuSteps {
		if s < m.trying && s > m.good {
			m.trying, m.tries = s, 0
			return
		}
	}
	m.settle(now)
}

func (m *pathMTU) settle(now clock.Time) {
	m.trying, m.tries, m.due = 0, 0, now.Add(verifyMTU)
	if m.raise == 0 {
		m.raise = now.Add(raiseMTU)
	}
}

// reached is called when the peer has seen a datagram of this size.
func (m *pathMTU) reached(now clock.Time, size int) {
	if m.trying == 0 || size < m.trying {
		return
	}
	m.good = m.trying
	m.settle(now)
}

// tooBig is called when the machine's own kernel has refused a datagram, because it knows that the path
// takes only size.
func (m *pathMTU) tooBig(now clock.Time, size int) {
	size = max(size, leastMTU)
	if size >= m.limit {
		return
	}
	m.limit = size
	m.good = min(m.good, size)
	if m.trying > size || m.trying == 0 {
		m.search(now)
	}
}
