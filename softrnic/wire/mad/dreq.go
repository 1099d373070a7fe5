package mad

import "github.com/rdmalab/rdmalab/softrnic/wire"

//	+---------------------------------------------------------------+
//	|                    local communication ID                     |
//	+---------------------------------------------------------------+
//	|                    remote communication ID                    |
//	+-----------------------------------------------+---------------+
//	|                  remote QPN                   |    reserved   |
//	+-----------------------------------------------+---------------+
//	|                    private data, 220 bytes                    |
//	+---------------------------------------------------------------+

// dreqPrivate is the room for private data in a DREQ, in bytes.
const dreqPrivate = 220

// DREQ asks to end a connection (IBTA 12.6.10).
type DREQ struct {
	LocalID, RemoteID CommID
	// QPN is the queue pair of the receiver of the message.
	QPN     wire.QPN
	Private [dreqPrivate]byte
}

func (*DREQ) Attr() Attr { return AttrDREQ }

func (m *DREQ) Parse(b []byte) error {
	if err := need(b, bodyLen, "DREQ"); err != nil {
		return err
	}
	*m = DREQ{LocalID: CommID(be32(b, 0)), RemoteID: CommID(be32(b, 4)), QPN: wire.QPN(be24(b, 8)), Private: [dreqPrivate]byte(b[12:])}
	return nil
}

func (m *DREQ) AppendTo(b []byte) []byte {
	b = put24(put32(put32(b, uint32(m.LocalID)), uint32(m.RemoteID)), uint32(m.QPN), 0)
	return append(b, m.Private[:]...)
}
