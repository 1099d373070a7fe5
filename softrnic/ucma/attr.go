package ucma

import (
	"cmp"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// States of a queue pair (enum ib_qp_state), and bits of qpAttr.Mask.
const (
	qpInit = 1
	qpRTR  = 2
	qpRTS  = 3

	maskPKeyIndex = 1 << 4
	maskPort      = 1 << 5
	maskInit      = uverbs.MaskState | maskPKeyIndex | maskPort
	maskRTR       = uverbs.MaskState | uverbs.MaskDest | uverbs.MaskPathMTU | uverbs.MaskDestQPN | uverbs.MaskRecvPSN |
		uverbs.MaskDestAtomic | uverbs.MaskRNRTimer
	maskRTS = uverbs.MaskState | uverbs.MaskSendPSN | uverbs.MaskTimeout | uverbs.MaskRetry | uverbs.MaskRNRRetry | uverbs.MaskRdAtomic

	// minRNRTimer is the code of 655 ms, which the kernel's connection manager chooses, too. A program
	// that posts its receives too late is as slow here as there.
	minRNRTimer = 0
	// DefaultQKey is the Q_Key of datagram services for which the program sets none (RDMA_UDP_QKEY).
	DefaultQKey = 0x01234567
)

// notOf has the attributes that a type of queue pair does not have, because they are those of the other end or
// of what the service does not do.
var notOf = map[uint8]uint32{
	typeUC:           uverbs.MaskDestAtomic | uverbs.MaskRNRTimer | uverbs.MaskTimeout | uverbs.MaskRetry | uverbs.MaskRNRRetry | uverbs.MaskRdAtomic,
	typeXRCInitiator: uverbs.MaskDestAtomic | uverbs.MaskRNRTimer,
	typeXRCTarget:    uverbs.MaskRetry | uverbs.MaskRNRRetry | uverbs.MaskRdAtomic,
}

// initQPAttr executes InitQPAttr: it returns the attributes with which the program then makes a
// transition of its queue pair.
func (m *Manager) initQPAttr(_ call, x *id, a initQPAttr) (Result, error) {
	t := &x.terms
	out := qpAttr{State: a.State, PKeys: [2]uint16{t.pkeyIndex}, QPTimes: QPTimes{Port: onlyPort}}
	switch known := t.peerQPN != 0; {
	case a.State == qpInit && x.datagrams():
		out.Mask, out.QKey = maskInit|uverbs.MaskQKey, x.qkey()
	case a.State == qpInit:
		out.Mask = maskInit | uverbs.MaskAccess
		if known {
			out.Access = uint32(verbs.RemoteWrite)
			if t.resources > 0 {
				out.Access |= uint32(verbs.RemoteRead | verbs.RemoteAtomic)
			}
		}
	case a.State == qpRTR && known && !x.datagrams():
		out.Mask, out.AH, out.PathMTU, out.DestQPN, out.RecvPSN = maskRTR&^notOf[x.qpType], m.cfg.ahOf(x, x.dst.Addr()), uint32(t.mtu), uint32(t.peerQPN), uint32(t.psn)
		out.MaxDestRdAtomic, out.MinRNRTimer = t.resources, minRNRTimer
	case a.State == qpRTS && known && !x.datagrams():
		out.Mask, out.SendPSN = maskRTS&^notOf[x.qpType], uint32(t.peerPSN)
		out.RetryCount, out.RNRRetry, out.MaxRdAtomic = t.retry, t.rnrRetry, t.depth
		out.Timeout = cmp.Or(x.options.ackTimeout, t.ackTimeout) // the program may have set the option after the request
	default:
		return Result{}, unix.EINVAL
	}
	return Result{Data: encode(out)}, nil
}

// ahOf returns the address of a peer, or of a group, for datagrams of x.
func (c *Config) ahOf(x *id, to netip.Addr) uverbs.AHAttr {
	i, _ := gidOf(c.Device.GIDs, x.src.Addr()) // always found: an identifier with a peer or group is bound to an address of the NIC
	return uverbs.AHAttr{
		DestGID: verbs.GIDOf(to), SourceGID: uint8(i), Hop: hopLimit, TClass: x.options.tos, Global: 1, Port: onlyPort,
	}
}

// qkey returns the Q_Key of the identifier's datagrams.
func (x *id) qkey() uint32 { return cmp.Or(x.terms.qkey, DefaultQKey) }
