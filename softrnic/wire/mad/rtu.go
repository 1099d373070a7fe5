package mad

//	+---------------------------------------------------------------+
//	|                    local communication ID                     |
//	+---------------------------------------------------------------+
//	|                    remote communication ID                    |
//	+---------------------------------------------------------------+
//	|                    private data, 224 bytes                    |
//	+---------------------------------------------------------------+

// RTUPrivate is the room for private data in an RTU, in bytes.
const RTUPrivate = 224

// RTU says that the initiator is ready to use the connection (IBTA 12.6.9).
type RTU struct {
	LocalID, RemoteID CommID
	Private           [RTUPrivate]byte
}

// Attr is AttrRTU.
func (*RTU) Attr() Attr { return AttrRTU }

// Len is BodyLen.
func (*RTU) Len() int { return BodyLen }

// Parse reads the message.
func (m *RTU) Parse(b []byte) error {
	if err := need(b, BodyLen, "RTU"); err != nil {
		return err
	}
	*m = RTU{LocalID: CommID(be32(b, 0)), RemoteID: CommID(be32(b, 4)), Private: [RTUPrivate]byte(b[8:])}
	return nil
}

// AppendTo appends the message to b.
func (m *RTU) AppendTo(b []byte) []byte {
	return append(put32(put32(b, uint32(m.LocalID)), uint32(m.RemoteID)), m.Private[:]...)
}
