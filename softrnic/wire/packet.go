package wire

// Packet is the transport part of a RoCEv2 packet: the BTH, the extended headers that its opcode
// has, and the payload. AppendTo ignores fields of headers that the opcode does not have;
// ParsePacket sets them to zero.
type Packet struct {
	BTH       BTH
	XRCETH    XRCETH
	FETH      FETH
	RETH      RETH
	AtomicETH AtomicETH
	Masks     AtomicMasks
	AETH      AETH
	DETH      DETH
	AtomicAck uint64 // AtomicAckETH: original value
	ImmDt     uint32 // immediate data, as a number
	IETH      uint32 // R_Key to invalidate
	CNP       CNPReserved
	// Payload is the payload without pad. It has at most 65432 bytes, so that with any headers it fits
	// into one IP datagram. After ParsePacket it points into the parsed bytes. AppendTo ignores it if
	// the opcode has no payload.
	Payload []byte
}

// maxPad is the largest pad count: payload and pad are a multiple of 4 bytes (IBTA 9.2).
const maxPad = 3

// ParsePacket parses a packet from b, which starts at the BTH and ends before the ICRC, and
// overwrites all fields of p. For an opcode that is not in the table, everything behind the BTH is
// payload. After an error, p has the fields that were parsed before the error.
func ParsePacket(b []byte, p *Packet) error {
	*p = Packet{}
	return p.parse(b)
}

// parse does the work of ParsePacket. All fields of p must be zero.
func (p *Packet) parse(b []byte) error {
	if err := p.BTH.Parse(b); err != nil {
		return err
	}
	info := p.BTH.Opcode.Info()
	if info.Headers != 0 {
		if err := p.parseHeaders(b[bthLen:], info.Headers); err != nil {
			return err
		}
	}
	return p.parsePayload(b[info.HeaderLen:], info)
}

// parseHeaders parses the extended headers in the set h from the start of b. They are in the order
// of the bits of Headers.
func (p *Packet) parseHeaders(b []byte, h Headers) (err error) {
	if h&HasDETH != 0 {
		if err = p.DETH.Parse(b); err != nil {
			return err
		}
		b = b[dethLen:]
	}
	if h&HasXRCETH != 0 {
		if err = p.XRCETH.Parse(b); err != nil {
			return err
		}
		b = b[xrcETHLen:]
	}
	if h&HasFETH != 0 {
		if err = p.FETH.Parse(b); err != nil {
			return err
		}
		b = b[fethLen:]
	}
	if h&HasRETH != 0 {
		if err = p.RETH.Parse(b); err != nil {
			return err
		}
		b = b[rethLen:]
	}
	if h&HasAETH != 0 {
		if err = p.AETH.Parse(b); err != nil {
			return err
		}
		b = b[aethLen:]
	}
	switch {
	case h&HasImmDt != 0:
		err = (*ImmDt)(&p.ImmDt).Parse(b)
	case h&HasIETH != 0:
		err = (*IETH)(&p.IETH).Parse(b)
	case h&HasAtomicETH != 0:
		if err = p.AtomicETH.Parse(b); err == nil && h&HasAtomicMasks != 0 {
			err = p.Masks.Parse(b[atomicETHLen:])
		}
	case h&HasAtomicAckETH != 0:
		err = (*AtomicAckETH)(&p.AtomicAck).Parse(b)
	case h&HasCNP != 0:
		err = p.CNP.Parse(b)
	}
	return err
}

// parsePayload splits b into payload and pad.
func (p *Packet) parsePayload(b []byte, info *OpInfo) error {
	if info.Flags&OpPayload == 0 && len(b) > 0 {
		return &FormatError{Header: info.Name, Reason: ErrPayload, Got: len(b)}
	}
	n := len(b) - int(p.BTH.Pad)
	switch {
	case len(b)&maxPad != 0:
		return &FormatError{Header: "packet", Reason: ErrAlign, Got: len(b), Want: len(b) &^ maxPad}
	case n < 0:
		return &FormatError{Header: "BTH", Reason: ErrPad, Got: int(p.BTH.Pad), Want: len(b)}
	}
	if n > 0 {
		p.Payload = b[:n:n]
	}
	return nil
}

// AppendTo appends BTH, the extended headers of the opcode, payload and pad to b.
func (p *Packet) AppendTo(b []byte) []byte {
	info := p.BTH.Opcode.Info()
	payload := p.payload(info)
	pad := padOf(len(payload))
	b = p.BTH.appendPadded(b, uint8(pad))
	if info.Headers != 0 {
		b = p.appendHeaders(b, info.Headers)
	}
	b = append(b, payload...)
	return append(b, zeroPad[:pad]...)
}

var zeroPad [maxPad]byte

// appendHeaders appends the extended headers in h in the order that parseHeaders reads.
func (p *Packet) appendHeaders(b []byte, h Headers) []byte {
	if h&HasDETH != 0 {
		b = p.DETH.AppendTo(b)
	}
	if h&HasXRCETH != 0 {
		b = p.XRCETH.AppendTo(b)
	}
	if h&HasFETH != 0 {
		b = p.FETH.AppendTo(b)
	}
	if h&HasRETH != 0 {
		b = p.RETH.AppendTo(b)
	}
	if h&HasAETH != 0 {
		b = p.AETH.AppendTo(b)
	}
	switch {
	case h&HasImmDt != 0:
		b = ImmDt(p.ImmDt).AppendTo(b)
	case h&HasIETH != 0:
		b = IETH(p.IETH).AppendTo(b)
	case h&HasAtomicETH != 0:
		if b = p.AtomicETH.AppendTo(b); h&HasAtomicMasks != 0 {
			b = p.Masks.AppendTo(b)
		}
	case h&HasAtomicAckETH != 0:
		b = AtomicAckETH(p.AtomicAck).AppendTo(b)
	case h&HasCNP != 0:
		b = p.CNP.AppendTo(b)
	}
	return b
}

func (p *Packet) Len() int {
	info := p.BTH.Opcode.Info()
	n := len(p.payload(info))
	return info.HeaderLen + n + padOf(n)
}

// payload returns p.Payload if the opcode has a payload.
func (p *Packet) payload(info *OpInfo) []byte {
	if info.Flags&OpPayload == 0 {
		return nil
	}
	return p.Payload
}

// padOf returns the number of pad bytes behind n bytes of payload.
func padOf(n int) int { return -n & maxPad }
