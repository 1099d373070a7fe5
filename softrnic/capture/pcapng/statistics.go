package pcapng

import "encoding/binary"

const blockStatistics uint32 = 5

// Options of an interface statistics block.
const (
	optReceived uint16 = 4 // packets seen on the interface
	optDropped  uint16 = 5 // packets seen on the interface that are not in the file
)

// dropped has, for each interface, how many of its packets are missing, as the last statistics say.
type dropped map[uint32]uint64

// of returns how many more packets are missing since the former statistics of the interface in a block. A broken
// option ends the list of options; those before it count.
func (d *dropped) of(body []byte, order binary.ByteOrder) (more uint64) {
	const fixed = 12
	if len(body) < fixed {
		return 0
	}
	id := order.Uint32(body)
	_ = options(body[fixed:], order, func(code uint16, value []byte) { // see above
		if code != optDropped || len(value) != 8 {
			return
		}
		if _, known := (*d)[id]; !known && len(*d) >= maxInterfaces {
			return
		}
		if *d == nil {
			*d = make(dropped)
		}
		if v := order.Uint64(value); v > (*d)[id] {
			more += v - (*d)[id]
			(*d)[id] = v
		}
	})
	return more
}

// WriteStatistics writes how many packets interface id has carried since the capture began, and how
// many of them are not in this file because its writer could not keep up. An empty comment is left
// out. Only the last such block of an interface counts.
func (w *Writer) WriteStatistics(id int, unixNanos int64, received, dropped uint64, comment string) error {
	start, err := w.about(blockStatistics, id, unixNanos, comment)
	if err != nil {
		return err
	}
	var number [8]byte
	binary.LittleEndian.PutUint64(number[:], received)
	w.option(optReceived, string(number[:]))
	binary.LittleEndian.PutUint64(number[:], dropped)
	w.option(optDropped, string(number[:]))
	if comment != "" {
		w.option(optComment, comment)
	}
	w.u32(uint32(optEnd))
	w.end(start)
	return w.flushIfFull()
}
