package wire

// ECN returns the congestion field of the frame's IP header.
func (f *Frame) ECN() ECN { return ECN(f.class() & ecnMask) }

// SetECN changes the congestion field of the frame's IP header.
func (f *Frame) SetECN(e ECN) { f.SetClass(f.class()&^ecnMask | uint8(e)) }

// SetClass changes the TOS byte or traffic class of the frame's IP header.
func (f *Frame) SetClass(class uint8) {
	if f.V6 {
		f.IPv6.TrafficClass = class
	} else {
		f.IPv4.TOS = class
	}
}

func (f *Frame) class() uint8 {
	if f.V6 {
		return f.IPv6.TrafficClass
	}
	return f.IPv4.TOS
}
