package mad

//	+---------------------------------------------------------------+
//	|                    local communication ID                     |
//	+---------------------------------------------------------------+
//	|                    remote communication ID                    |
//	+---+-----------+---------+-----+-------------------------------+
//	|msg|  reserved | timeout | res.|   private data, 222 bytes …   |   message MRAed, service timeout
//	+---+-----------+---------+-----+-------------------------------+

// mraPrivate is the room for private data in an MRA, in bytes.
const mraPrivate = 222

// Stage says to which message an MRA or REJ refers.
type Stage uint8

// Values of Stage: the message is a REQ, a REP or another one.
const (
	StageREQ   Stage = 0
	StageREP   Stage = 1
	StageOther Stage = 2
)

// MRA (message receipt acknowledged) says that a message has arrived and that its answer will take
// longer (IBTA 12.6.6).
type MRA struct {
	LocalID, RemoteID CommID
	About             Stage
	// Timeout is the time code of the longest time until the answer. The time begins when the MRA
	// arrives.
	Timeout uint8
	Private [mraPrivate]byte
}

func (*MRA) Attr() Attr { return AttrMRA }

func (m *MRA) Parse(b []byte) error {
	if err := need(b, bodyLen, "MRA"); err != nil {
		return err
	}
	*m = MRA{LocalID: CommID(be32(b, 0)), RemoteID: CommID(be32(b, 4)), About: Stage(b[8] >> 6), Timeout: b[9] >> 3}
	copy(m.Private[:], b[10:])
	return nil
}

func (m *MRA) AppendTo(b []byte) []byte {
	b = put32(put32(b, uint32(m.LocalID)), uint32(m.RemoteID))
	b = append(b, uint8(m.About)<<6, m.Timeout<<3)
	return append(b, m.Private[:]...)
}
