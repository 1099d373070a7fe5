package trunkport

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
)

// Carrier says how datagrams reach the peer.
type Carrier uint8

const (
	UDP Carrier = iota
	TCP
)

func (c Carrier) String() string { return [...]string{"udp", "tcp"}[c] }

// carrier takes datagrams to the peer and brings those of the peer. Its methods belong to one goroutine
// at a time.
type carrier interface {
	// ready reports whether there is a datagram. If all were returned it asks the kernel for others,
	// whose memory is that of the former ones. more reports the same and does not ask. next returns the
	// next datagram if there is one; nil is one that breaks the rules of the carrier.
	ready(now clock.Time) bool
	more() bool
	next() []byte
	// took says whether the datagram that next has returned last was the peer's, or was refused.
	took(now clock.Time, accepted bool)
	// send sends a train. An error means that not all of it was sent; rest is what was not.
	send(t trunk.Train) (rest []byte, err error)
	// sendOne sends one datagram.
	sendOne(d []byte) error
	// pathMTU returns the length of the longest IP packet that reaches the peer, as far as the kernel
	// knows.
	pathMTU() (int, error)
	// tick does what is due, and returns how long it takes until something is.
	tick(now clock.Time) time.Duration
	// bell is a file that becomes readable when something has come.
	bell() int
	// trouble says why nothing can be sent, as the kernel does; "" if it gives no reason.
	trouble() string
	close() error
}

// open makes the carrier of a port.
func (c *Config) open(found *refusals) (carrier, error) {
	if c.Carrier == TCP {
		return c.tcp()
	}
	return c.udp(found)
}

// within runs f in the network namespace of the trunk.
func (c *Config) within(f func() error) error {
	if c.Within == nil {
		return f()
	}
	return c.Within(f)
}

// whence names the two ends in an error.
func (c *Config) whence() string { return fmt.Sprintf("from %v to %v", c.Local, c.Peer) }
