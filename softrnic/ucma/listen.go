package ucma

import (
	"cmp"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// listen executes Listen: it makes an identifier accept requests at its port.
func (m *Manager) listen(c call, x *id, a listen) (Result, error) {
	switch {
	case x.state == Fresh: // not bound: it listens at all addresses and a free port
		if err := m.cfg.give(x, netip.AddrPortFrom(netip.IPv4Unspecified(), 0)); err != nil {
			return Result{}, err
		}
		x.step(onBind)
	case !x.may(onListen):
		return Result{}, unix.EINVAL
	}
	switch {
	case c.NIC == nil:
		return Result{}, unix.ENODEV
	case len(m.nic.listeners) >= m.cfg.Listeners:
		return Result{}, verbs.Errorf("listen", verbs.ErrLimit, "this program has %d listeners; it may have %d", len(m.nic.listeners), m.cfg.Listeners)
	}
	// No other identifier may have the address and port of a listener.
	if err := m.cfg.Ports.check(x, x.src, false); err != nil {
		return Result{}, err
	}
	x.backlog = int(min(a.Backlog-1, maxBacklog-1)) + 1 // a backlog of 0 means the largest
	listen := c.NIC.Listen
	if x.datagrams() {
		listen = c.NIC.ListenDatagrams
	}
	l, err := listen(x.service(x.src.Port()), x.accepts(), x.backlog)
	if errors.Is(err, verbs.ErrBusy) {
		err = unix.EADDRINUSE
	}
	if err != nil {
		return Result{}, err
	}
	x.step(onListen)
	x.options.reuse = false
	l.Watch(&m.nic)
	x.listener, m.nic.listeners[l] = l, x
	return Result{}, nil
}

// Requested makes an identifier for a peer's request. The engine calls it; see engine.CMWatcher.
func (r *reports) Requested(l *engine.CMListener, c *engine.CMConn) (why cm.Refusal, ok bool) {
	x := r.listeners[l]
	ip, private, err := r.header(c)
	if x == nil || err != nil || ip.Src != c.Peer || !x.takes(c) {
		return cm.Refusal{Reason: mad.ReasonConsumer}, false
	}
	if own := cm.MTUCode(r.cfg.Device.ActiveMTU); c.Request != nil && c.Request.MTU > own {
		return cm.Refusal{Reason: mad.ReasonInvalidMTU, Info: []byte{own}}, false
	}
	if x.waiting >= x.backlog || mayTell(r.cfg.Quota) != nil {
		return cm.Refusal{Reason: mad.ReasonNoResources}, false
	}
	made, err := r.newID(x.channel, 0)
	if err != nil {
		return cm.Refusal{Reason: mad.ReasonNoResources}, false
	}
	made.space, made.qpType, made.conn, made.of, made.options.tos = x.space, x.qpType, c, x, x.options.tos
	pkeyIndex, _ := verbs.PKeyIndex(r.cfg.Device.PKeys, pkeyOf(c)) // always found: the NIC refuses requests with other P_Keys
	made.terms.pkeyIndex = uint16(pkeyIndex)
	x.waiting++
	made.src, made.dst = netip.AddrPortFrom(c.Local, x.src.Port()), netip.AddrPortFrom(c.Peer, ip.SrcPort)
	made.step(onRequest)
	r.conns[c] = made
	r.cfg.queue(x.channel, pending{of: x, made: made, event: newEvent(x.uid, made.handle, connectRequest, 0, r.asked(made, private))})
	return why, true
}

// pkeyOf returns the P_Key in a connection request or SIDR request.
func pkeyOf(c *engine.CMConn) uint16 {
	if c.Ask != nil {
		return c.Ask.PKey
	}
	return c.Request.PKey
}

// accepts returns the addresses of the NIC at which a listener accepts requests. The zero Prefix
// means all addresses.
func (x *id) accepts() netip.Prefix {
	switch own := x.src.Addr(); {
	case !anyAddr(own):
		return netip.PrefixFrom(own, own.BitLen())
	case x.options.only:
		return netip.PrefixFrom(own, 0)
	}
	return netip.Prefix{}
}

// header splits the private data of a request into the header of RDMA-CM and the program's data.
func (r *reports) header(c *engine.CMConn) (ip mad.IPData, private []byte, err error) {
	b := []byte(nil)
	if c.Ask != nil {
		b = c.Ask.Private[:]
	} else {
		b = c.Request.Private[:]
	}
	err = ip.Parse(b)
	return ip, b[mad.IPDataLen:], err
}

// asked stores the values of a peer's request in the identifier x that was made for it, and returns
// the parameters of the event that reports the request to the program.
func (r *reports) asked(x *id, private []byte) any {
	t := &x.terms
	t.mtu, t.ackTimeout = cm.MTUCode(r.cfg.Device.ActiveMTU), x.options.timeout()
	if x.datagrams() {
		p := datagramParam{AH: r.cfg.ahOf(x, x.dst.Addr()), QKey: DefaultQKey}
		p.PrivateLen = uint8(copy(p.Private[:], private))
		return p
	}
	req := x.conn.Request
	t.peerQPN, t.peerPSN, t.psn, t.mtu = req.QPN, req.PSN, r.cfg.newPSN(), req.MTU
	t.resources, t.depth, t.retry, t.rnrRetry = req.InitiatorDepth, req.ResponderResources, req.Retry, req.RNRRetry
	t.ackTimeout = cmp.Or(x.options.ackTimeout, cm.PeerTimeout(req.Primary.AckTimeout))
	p := connParam{
		QPN: uint32(req.QPN), Resources: t.resources, Depth: t.depth, Retry: req.Retry, RNRRetry: req.RNRRetry,
		SRQ: flag(req.SRQ), FlowControl: flag(req.FlowControl),
	}
	p.PrivateLen = uint8(copy(p.Private[:], private))
	return p
}

func (c *Config) newPSN() wire.PSN { return wire.PSN(c.Rand.Uint32()).Add(0) }

// flag converts a bool to the form in the ABI.
func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
