package cm

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Config describes a connection manager. Fields of type uint8 that are times have codes; see
// mad.Time. In every field but Rand and GUID, 0 means the default.
type Config struct {
	// Rand generates the numbers of connections; required. Only the machine may use it.
	Rand *rand.Rand
	// GUID identifies the NIC to peers.
	GUID uint64
	// ResponseTimeout is how long the machine waits for an answer before it sends a message again.
	// The default is code 15, which is 134 ms.
	ResponseTimeout uint8
	// MaxRetries is how often a message is sent again. It is at most 15, which is the default.
	MaxRetries uint8
	// OwnTimeout is the time within which this side promises to answer a message. The default is
	// code 15, which is 134 ms.
	OwnTimeout uint8
	// ServiceTimeout is the time that an MRA asks a peer to wait for an application. The default is
	// code 18, which is 1.07 s.
	ServiceTimeout uint8
	// TimeWait is how long a connection that has ended is kept, unless its ACK timeout is longer. The
	// default is code 17, which is 537 ms, as in Linux.
	TimeWait uint8
	// Pending is how long an application may leave a request without an answer. The default is one
	// minute.
	Pending time.Duration
	// MaxConns is the largest number of connections that have not ended. The default is 16384.
	MaxConns int
	// MaxRequests is the largest number of connections that wait for an application's answer. The
	// default is 1024.
	MaxRequests int
	// MaxTimeWait is the largest number of ended connections that are kept. The default is 4096.
	MaxTimeWait int
	// MaxListeners is the largest number of listeners. The default is 1024.
	MaxListeners int
}

// Limits for time codes that a peer sends, so that a peer can neither make this side wait forever
// nor make it send without a pause.
const (
	minTimeout = 8  // 1 ms
	maxTimeout = 24 // 69 s, which Linux requests in an MRA
	// maxAnswer is the largest code of the time that a peer may claim, in its REQ, for its answers:
	// 4.3 s, as in Linux. This side waits that long after each of up to 16 transmissions of a message
	// (IBTA 12.7.27/timeout).
	maxAnswer = 20
	maxCode   = 31 // largest time code
	// maxCMRetries is the largest value of the field Max CM Retries in a REQ, which has 4 bits.
	maxCMRetries = 15
)

// PeerTimeout returns the code of an ACK timeout that a peer requests, within limits. A shorter one
// would cause needless retransmissions, a longer one would delay errors too long.
func PeerTimeout(code uint8) uint8 {
	const shortest, longest = 8, 20 // 1 ms, 4.3 s
	return min(max(code, shortest), longest)
}

// AckDelay is the time code of the NIC's ACK delay, for the REP of a connection. It is that of the
// Linux driver rxe: 134 ms.
const AckDelay = 15

func (c Config) withDefaults() Config {
	c.ResponseTimeout = cmp.Or(c.ResponseTimeout, 15)
	c.MaxRetries = cmp.Or(c.MaxRetries, maxCMRetries)
	c.OwnTimeout = cmp.Or(c.OwnTimeout, 15)
	c.ServiceTimeout = cmp.Or(c.ServiceTimeout, 18)
	c.TimeWait = cmp.Or(c.TimeWait, 17)
	c.Pending = cmp.Or(c.Pending, time.Minute)
	c.MaxConns = cmp.Or(c.MaxConns, 16384)
	c.MaxRequests = cmp.Or(c.MaxRequests, 1024)
	c.MaxTimeWait = cmp.Or(c.MaxTimeWait, 4096)
	c.MaxListeners = cmp.Or(c.MaxListeners, 1024)
	return c
}

func (c Config) Validate() error {
	if c.Rand == nil {
		return errors.New("cm config: Rand is nil; pass a seeded generator")
	}
	if c.MaxRetries > maxCMRetries {
		return fmt.Errorf("cm config: %d retries; at most %d", c.MaxRetries, maxCMRetries)
	}
	for _, v := range []uint8{c.ResponseTimeout, c.OwnTimeout, c.ServiceTimeout, c.TimeWait} {
		if v > maxCode {
			return fmt.Errorf("cm config: time code %d; at most %d", v, maxCode)
		}
	}
	if c.Pending < 0 || c.MaxConns < 0 || c.MaxRequests < 0 || c.MaxTimeWait < 0 || c.MaxListeners < 0 {
		return errors.New("cm config: a limit is negative")
	}
	return nil
}

// interval returns the duration of a time code, at least that of minTimeout and at most that of
// maxTimeout.
func interval(code uint8) time.Duration { return mad.Time(min(max(code, minTimeout), maxTimeout)) }

// Stats has the counters of a connection manager.
type Stats struct {
	// Sent and Rcvd count datagrams; Retries counts those that were sent again because no answer
	// came.
	Sent, Rcvd, Retries uint64
	// Duplicates counts repeated messages. Strays counts messages for which there is no connection, or
	// which the state of their connection does not allow. Malformed counts those that could not be
	// parsed.
	Duplicates, Strays, Malformed uint64
	// Requests counts new requests. Refused counts requests that the machine has refused without
	// asking an application: invalid or stale ones, and those without a listener or a free connection.
	Requests, Refused uint64
	// Established counts established connections. Stale counts connections that ended here because the
	// peer used its queue pair for a new one. Expired counts waits for a peer or an application that
	// ended without an answer.
	Established, Stale, Expired uint64
}
