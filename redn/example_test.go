package redn_test

import (
	"encoding/binary"
	"fmt"
	"log"

	"github.com/rdmalab/rdmalab/redn"
)

// A condition: if the operand at word 0 is 5, the NIC copies word 2 to word 1.
func Example() {
	m, err := redn.NewMachine(true) // a NIC in virtual time, with the queues Main and Second
	if err != nil {
		log.Fatal(err)
	}
	word := func(i int) redn.Mem { return m.Data.At(8*i, 8) }
	binary.LittleEndian.PutUint64(m.Memory[0:], 5)             // x
	binary.LittleEndian.PutUint64(m.Memory[16:], 7)            // a constant
	m.Main.If(m.Second, word(0), 5, word(1), word(2), word(3)) // if x == 5, copy word 2 to word 1
	if err := redn.Verify(nil, m.Main, m.Second); err != nil {
		log.Fatal(err)
	}
	if err := m.Run(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(binary.LittleEndian.Uint64(m.Memory[8:]))
	// Output: 7
}
