package dissect

import (
	"encoding/binary"
	"fmt"

	"github.com/google/gopacket"
)

// Payload is the application's data and the pad behind it.
type Payload struct {
	Base
	Data []byte
	Pad  []byte
}

func (p *Payload) LayerType() gopacket.LayerType { return LayerTypePayload }

// ICRC is the invariant CRC at the end of every packet. The function Sum returns the correct value.
type ICRC struct {
	Base
	Value uint32
}

const icrcLength = 4

func (c *ICRC) LayerType() gopacket.LayerType { return LayerTypeICRC }

// tail decodes the bytes after the headers: payload and pad, if there are any, and the ICRC.
type tail struct {
	pad int // bytes
}

func (t tail) Decode(data []byte, p gopacket.PacketBuilder) error {
	if err := take(data, t.pad+icrcLength, "pad and ICRC", p); err != nil {
		return err
	}
	end := len(data) - icrcLength
	if end%4 != 0 {
		return fmt.Errorf("payload and pad of %d bytes are no multiple of 4", end)
	}
	if end > 0 {
		p.AddLayer(&Payload{
			Base: Base{Contents: data[:end], Payload: data[end:]},
			Data: data[:end-t.pad], Pad: data[end-t.pad : end],
		})
	}
	p.AddLayer(&ICRC{Base: Base{Contents: data[end:]}, Value: binary.LittleEndian.Uint32(data[end:])})
	return nil
}
