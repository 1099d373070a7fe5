package mad

//	+---------------------------------------------------------------+
//	|                    local communication ID                     |
//	+---------------------------------------------------------------+
//	|                    remote communication ID                    |
//	+---------------------------------------------------------------+
//	|                    private data, 224 bytes                    |
//	+---------------------------------------------------------------+

// rtuPrivate is the room for private data in an RTU, in bytes.
const rtuPrivate = 224

// RTU (ready to use) answers a REP: the initiator is ready to use the connection (IBTA 12.6.9).
type RTU struct {
	LocalID, RemoteID CommID
	Private           [rtuPrivate]byte
}

func (*RTU) Attr() Attr { return AttrRTU }

func (m *RTU) Parse(b []byte) error {
	if err := need(b, bodyLen, "RTU"); err != nil {
		return err
	}
	*m = RTU{LocalID: CommID(be32(b, 0)), RemoteID: CommID(be32(b, 4)), Private: [rtuPrivate]byte(b[8:])}
	return nil
}

func (m *RTU) AppendTo(b []byte) []byte {
	return append(put32(put32(b, uint32(m.LocalID)), uint32(m.RemoteID)), m.Private[:]...)
}
