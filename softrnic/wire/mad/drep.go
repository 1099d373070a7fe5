package mad

//	+---------------------------------------------------------------+
//	|                    local communication ID                     |
//	+---------------------------------------------------------------+
//	|                    remote communication ID                    |
//	+---------------------------------------------------------------+
//	|                    private data, 224 bytes                    |
//	+---------------------------------------------------------------+

// drepPrivate is the room for private data in a DREP, in bytes.
const drepPrivate = 224

// DREP answers a DREQ: the peer has ended the connection, too (IBTA 12.6.11).
type DREP struct {
	LocalID, RemoteID CommID
	Private           [drepPrivate]byte
}

func (*DREP) Attr() Attr { return AttrDREP }

func (m *DREP) Parse(b []byte) error {
	if err := need(b, bodyLen, "DREP"); err != nil {
		return err
	}
	*m = DREP{LocalID: CommID(be32(b, 0)), RemoteID: CommID(be32(b, 4)), Private: [drepPrivate]byte(b[8:])}
	return nil
}

func (m *DREP) AppendTo(b []byte) []byte {
	return append(put32(put32(b, uint32(m.LocalID)), uint32(m.RemoteID)), m.Private[:]...)
}
