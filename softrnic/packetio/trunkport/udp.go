package trunkport

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
)

// udp carries datagrams by a UDP socket that is connected to the peer.
type udp struct {
	fd int
	v6 bool
	rx *receiver
	tx *sender
}

func (c *Config) udp(found *refusals) (*udp, error) {
	u := &udp{fd: -1, v6: c.Peer.Addr().Is6(), rx: found.receiver(), tx: found.sender()}
	err := c.within(func() (err error) {
		u.fd, err = socket(c.Local, c.Peer, found)
		return err
	})
	return u, err
}

func (u *udp) ready(clock.Time) bool                       { return u.rx.ready(u.fd) }
func (u *udp) more() bool                                  { return u.rx.more() }
func (u *udp) next() []byte                                { return u.rx.next() }
func (u *udp) took(clock.Time, bool)                       {}
func (u *udp) send(t trunk.Train) (rest []byte, err error) { return u.tx.send(u.fd, &t) }
func (u *udp) sendOne(d []byte) error                      { return sendOne(u.fd, d) }
func (u *udp) pathMTU() (int, error)                       { return pathMTU(u.fd, u.v6) }
func (u *udp) tick(clock.Time) time.Duration               { return time.Hour }
func (u *udp) bell() int                                   { return u.fd }
func (u *udp) trouble() string                             { return "" }
func (u *udp) close() error                                { return unix.Close(u.fd) }
