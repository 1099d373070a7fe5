package mad

import "github.com/rdmalab/rdmalab/softrnic/wire"

//	+---------------------------------------------------------------+
//	|                    local communication ID                     |
//	+---------------------------------------------------------------+
//	|                    remote communication ID                    |
//	+---------------------------------------------------------------+
//	|                          local Q_Key                          |
//	+-----------------------------------------------+---------------+
//	|                  local QPN                    |    reserved   |
//	+-----------------------------------------------+---------------+
//	|               local EE context                |    reserved   |
//	+-----------------------------------------------+---------------+
//	|                 starting PSN                  |    reserved   |
//	+---------------+---------------+---------+---+-+-----+-+-------+
//	|resp. resources|initiator depth|ACK delay|fov|F| RNR |S| res.  |
//	+---------------+---------------+---------+---+-+-----+-+-------+
//	|                         local CA GUID                         |
//	|                                                               |
//	+---------------------------------------------------------------+
//	|                    private data, 196 bytes                    |
//	+---------------------------------------------------------------+

// REPPrivate is the room for private data in a REP, in bytes.
const REPPrivate = 196

// REP accepts the connection that a REQ has requested (IBTA 12.6.8).
type REP struct {
	LocalID, RemoteID CommID
	QKey              uint32
	QPN               wire.QPN // 0 in the answer to a request for XRC: then LocalEECN has the number
	LocalEECN         uint32
	// PSN is the first PSN that the receiver of the message must send, as in a REQ.
	PSN                                wire.PSN
	ResponderResources, InitiatorDepth uint8
	// AckDelay is the time code of the longest time until the sender of the message sends an ACK.
	AckDelay    uint8
	Failover    uint8
	FlowControl bool
	RNRRetry    uint8
	SRQ         bool
	LocalGUID   uint64
	Private     [REPPrivate]byte
}

func (*REP) Attr() Attr { return AttrREP }

// Pair returns the number of the sender's queue pair.
func (m *REP) Pair() wire.QPN {
	if m.QPN == 0 {
		return wire.QPN(m.LocalEECN)
	}
	return m.QPN
}

// Bits of bytes that several fields of a REP share.
const (
	repFlowControl = 0x01
	repSRQ         = 0x10
)

func (m *REP) Parse(b []byte) error {
	if err := need(b, bodyLen, "REP"); err != nil {
		return err
	}
	*m = REP{
		LocalID: CommID(be32(b, 0)), RemoteID: CommID(be32(b, 4)), QKey: be32(b, 8), QPN: wire.QPN(be24(b, 12)), LocalEECN: be24(b, 16),
		PSN: wire.PSN(be24(b, 20)), ResponderResources: b[24], InitiatorDepth: b[25],
		AckDelay: b[26] >> 3, Failover: b[26] >> 1 & mask2, FlowControl: b[26]&repFlowControl != 0,
		RNRRetry: b[27] >> 5, SRQ: b[27]&repSRQ != 0, LocalGUID: be64(b, 28),
	}
	copy(m.Private[:], b[36:])
	return nil
}

func (m *REP) AppendTo(b []byte) []byte {
	b = put32(put32(b, uint32(m.LocalID)), uint32(m.RemoteID))
	b = put32(b, m.QKey)
	b = put24(put24(put24(b, uint32(m.QPN), 0), m.LocalEECN, 0), uint32(m.PSN), 0)
	b = append(b, m.ResponderResources, m.InitiatorDepth,
		m.AckDelay<<3|m.Failover&mask2<<1|bit(m.FlowControl, repFlowControl), m.RNRRetry<<5|bit(m.SRQ, repSRQ))
	b = put64(b, m.LocalGUID)
	return append(b, m.Private[:]...)
}
