package mad

//	+---------------------------------------------------------------+
//	|                    local communication ID                     |
//	+---------------------------------------------------------------+
//	|                    remote communication ID                    |
//	+---+-----------+-------------+-+-------------------------------+
//	|msg|  reserved | info length |r|            reason             |   message REJected
//	+---+-----------+-------------+-+-------------------------------+
//	|          additional reject information, 72 bytes              |
//	+---------------------------------------------------------------+
//	|                   private data, 148 bytes                     |
//	+---------------------------------------------------------------+

// Lengths of fields of a REJ, in bytes.
const (
	REJPrivate = 148
	REJInfo    = 72
)

// REJ refuses a connection, or ends it while it is being made (IBTA 12.6.7).
type REJ struct {
	LocalID, RemoteID CommID
	About             Stage
	Reason            Reason
	// InfoLen is how many bytes of Info are valid. Their meaning depends on the reason.
	InfoLen uint8
	Info    [REJInfo]byte
	Private [REJPrivate]byte
}

func (*REJ) Attr() Attr { return AttrREJ }

func (m *REJ) Parse(b []byte) error {
	if err := need(b, bodyLen, "REJ"); err != nil {
		return err
	}
	*m = REJ{
		LocalID: CommID(be32(b, 0)), RemoteID: CommID(be32(b, 4)), About: Stage(b[8] >> 6), InfoLen: b[9] >> 1, Reason: Reason(be16(b, 10)),
	}
	copy(m.Info[:], b[12:])
	copy(m.Private[:], b[12+REJInfo:])
	return nil
}

func (m *REJ) AppendTo(b []byte) []byte {
	b = put32(put32(b, uint32(m.LocalID)), uint32(m.RemoteID))
	b = append(b, uint8(m.About)<<6, m.InfoLen&mask7<<1)
	b = put16(b, uint16(m.Reason))
	return append(append(b, m.Info[:]...), m.Private[:]...)
}
