package slab_test

import (
	"fmt"

	"github.com/rdmalab/rdmalab/store/slab"
)

// A server with four segments of 4 KiB and places of two lengths: class 0 has 2 KiB, class 1 has
// 4 KiB. The small places of a segment go back to the large ones.
func Example() {
	classes := slab.NewTable(1, 4)
	var free [2]slab.Free[int] // a place is named by its offset
	grow := func(class, length int) {
		if s, ok := classes.Find(0); ok {
			classes.Set(s, class) // and in the memory of the server, before a place is given out
			for at := s.N << 12; at < (s.N+1)<<12; at += length {
				free[class].Push(s.Server, at)
			}
		}
	}
	grow(0, 2048)
	a, _ := free[0].Pop(slab.Anywhere)
	b, _ := free[0].Pop(slab.Anywhere)
	for range 4 {
		grow(1, 4096)
	}
	fmt.Println(a, b, "large:", free[1].Len(slab.Anywhere), "unused segments:", classes.Unused(slab.Anywhere))

	// Both small places are free again. No client may know them any more when the segment gets
	// another class: epoch 1 must be over for every client.
	classes.Rest(slab.Segment{Server: 0, N: 0}, 1)
	fmt.Println("waiting:", classes.Wake(1, 1), "unused segments:", classes.Unused(slab.Anywhere))
	fmt.Println("waiting:", classes.Wake(2, 2), "unused segments:", classes.Unused(slab.Anywhere))
	grow(1, 4096)
	fmt.Println("large:", free[1].Len(slab.Anywhere))
	// Output:
	// 0 2048 large: 3 unused segments: 0
	// waiting: true unused segments: 0
	// waiting: false unused segments: 1
	// large: 4
}
