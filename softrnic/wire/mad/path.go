package mad

//	+-------------------------------+-------------------------------+
//	|           local LID           |          remote LID           |
//	+-------------------------------+-------------------------------+
//	|                      local GID, 16 bytes                      |
//	+---------------------------------------------------------------+
//	|                      remote GID, 16 bytes                     |
//	+---------------------------------------+-----------+-----------+
//	|               flow label              |  reserved |    rate   |
//	+---------------+---------------+-------+-+-----+---+-----+-----+
//	| traffic class |   hop limit   |   SL  |L| res.| timeout | res.|   subnet local, local ACK timeout
//	+---------------+---------------+-------+-+-----+---------+-----+

const pathLen = 44

// Path is a path between two ports, in a REQ.
type Path struct {
	LocalLID, RemoteLID    uint16 // 0xffff on RoCE
	LocalGID, RemoteGID    [16]byte
	FlowLabel              uint32
	Rate                   uint8
	TrafficClass, HopLimit uint8
	SL                     uint8
	SubnetLocal            bool
	// AckTimeout is the time code of the local ACK timeout for the queue pair of the receiver of
	// the REQ.
	AckTimeout uint8
}

const pathSubnetLocal = 0x08

func (p *Path) parse(b []byte) {
	*p = Path{
		LocalLID: be16(b, 0), RemoteLID: be16(b, 2), LocalGID: [16]byte(b[4:]), RemoteGID: [16]byte(b[20:]),
		FlowLabel: be32(b, 36) >> 12, Rate: b[39] & mask6, TrafficClass: b[40], HopLimit: b[41],
		SL: b[42] >> 4, SubnetLocal: b[42]&pathSubnetLocal != 0, AckTimeout: b[43] >> 3,
	}
}

func (p *Path) appendTo(b []byte) []byte {
	b = put16(put16(b, p.LocalLID), p.RemoteLID)
	b = append(append(b, p.LocalGID[:]...), p.RemoteGID[:]...)
	b = put32(b, p.FlowLabel&mask20<<12|uint32(p.Rate&mask6))
	return append(b, p.TrafficClass, p.HopLimit, p.SL<<4|bit(p.SubnetLocal, pathSubnetLocal), p.AckTimeout<<3)
}
