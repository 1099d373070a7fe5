package mad

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|                    local communication ID                     |
//	+---------------------------------------------------------------+
//	|                           reserved                            |
//	+---------------------------------------------------------------+
//	|                          service ID                           |
//	|                                                               |
//	+---------------------------------------------------------------+
//	|                         local CA GUID                         |
//	|                                                               |
//	+---------------------------------------------------------------+
//	|                           reserved                            |
//	+---------------------------------------------------------------+
//	|                          local Q_Key                          |
//	+-----------------------------------------------+---------------+
//	|                  local QPN                    |resp. resources|
//	+-----------------------------------------------+---------------+
//	|                 local EE context              |initiator depth|
//	+-----------------------------------------------+---------+---+-+
//	|                remote EE context              | timeout |svc|F|   remote CM response timeout, service type
//	+-----------------------------------------------+---------+---+-+
//	|                 starting PSN                  | timeout |retry|   local CM response timeout
//	+-------------------------------+-------+-+-----+-------+-+-----+
//	|             P_Key             |  MTU  |D| RNR |retries|S| ext |   path MTU, RNR retry count, max CM retries
//	+-------------------------------+-------+-+-----+-------+-+-----+
//	|                      primary path, 44 bytes                   |
//	+---------------------------------------------------------------+
//	|                     alternate path, 44 bytes                  |
//	+---------------------------------------------------------------+
//	|                     private data, 92 bytes                    |
//	+---------------------------------------------------------------+

// REQPrivate is the room for private data in a REQ, in bytes.
const REQPrivate = 92

// REQ requests a connection (IBTA 12.6.5).
type REQ struct {
	LocalID   CommID
	Service   ServiceID
	LocalGUID uint64 // GUID of the sender's channel adapter
	QKey      uint32
	QPN       wire.QPN
	// ResponderResources is how many READs and atomics of the peer may be in flight to the sender of
	// the REQ. InitiatorDepth is how many of the sender may be in flight to the peer.
	ResponderResources, InitiatorDepth uint8
	LocalEECN, RemoteEECN              uint32
	// RemoteTimeout is the code of the time within which the peer must answer the REQ. LocalTimeout is
	// the code of the time within which the sender answers the REP.
	RemoteTimeout, LocalTimeout uint8
	Type                        uint8 // transport service: TypeRC and so on
	FlowControl                 bool  // end-to-end flow control
	// PSN is the first PSN that the receiver of the REQ must send (IBTA 12.7.31), because the sender
	// of the REQ expects it.
	PSN             wire.PSN
	Retry, RNRRetry uint8
	PKey            uint16
	// MTU is the code of the path MTU: 1 is 256 bytes, 5 is 4096.
	MTU          uint8
	RDCExists    bool
	MaxCMRetries uint8
	SRQ          bool
	ExtendedType uint8 // the service if Type is TypeExtended
	Primary, Alt Path
	Private      [REQPrivate]byte
}

// Transport services (IBTA 12.6.5/type, A14).
const (
	TypeRC       = 0
	TypeUC       = 1
	TypeExtended = 3
	// ExtendedXRC is an ExtendedType: the sender is an initiator, and asks for a target.
	ExtendedXRC = 1
)

func (*REQ) Attr() Attr { return AttrREQ }

// XRC reports whether the request is for an extended reliable connection.
func (m *REQ) XRC() bool { return m.Type == TypeExtended && m.ExtendedType == ExtendedXRC }

// Bits of bytes that several fields of a REQ share.
const (
	reqFlowControl = 0x01
	reqRDC         = 0x08
	reqSRQ         = 0x08
)

func (m *REQ) Parse(b []byte) error {
	if err := need(b, bodyLen, "REQ"); err != nil {
		return err
	}
	*m = REQ{
		LocalID: CommID(be32(b, 0)), Service: ServiceID(be64(b, 8)), LocalGUID: be64(b, 16), QKey: be32(b, 28),
		QPN: wire.QPN(be24(b, 32)), ResponderResources: b[35],
		LocalEECN: be24(b, 36), InitiatorDepth: b[39],
		RemoteEECN: be24(b, 40), RemoteTimeout: b[43] >> 3, Type: b[43] >> 1 & mask2, FlowControl: b[43]&reqFlowControl != 0,
		PSN: wire.PSN(be24(b, 44)), LocalTimeout: b[47] >> 3, Retry: b[47] & mask3,
		PKey: be16(b, 48), MTU: b[50] >> 4, RDCExists: b[50]&reqRDC != 0, RNRRetry: b[50] & mask3,
		MaxCMRetries: b[51] >> 4, SRQ: b[51]&reqSRQ != 0, ExtendedType: b[51] & mask3,
	}
	m.Primary.parse(b[52:])
	m.Alt.parse(b[52+pathLen:])
	copy(m.Private[:], b[52+2*pathLen:])
	return nil
}

func (m *REQ) AppendTo(b []byte) []byte {
	b = put32(put32(b, uint32(m.LocalID)), 0)
	b = put64(put64(b, uint64(m.Service)), m.LocalGUID)
	b = put32(put32(b, 0), m.QKey)
	b = put24(b, uint32(m.QPN), m.ResponderResources)
	b = put24(b, m.LocalEECN, m.InitiatorDepth)
	b = put24(b, m.RemoteEECN, m.RemoteTimeout<<3|m.Type&mask2<<1|bit(m.FlowControl, reqFlowControl))
	b = put24(b, uint32(m.PSN), m.LocalTimeout<<3|m.Retry&mask3)
	b = put16(b, m.PKey)
	b = append(b, m.MTU<<4|bit(m.RDCExists, reqRDC)|m.RNRRetry&mask3, m.MaxCMRetries<<4|bit(m.SRQ, reqSRQ)|m.ExtendedType&mask3)
	b = m.Alt.appendTo(m.Primary.appendTo(b))
	return append(b, m.Private[:]...)
}
