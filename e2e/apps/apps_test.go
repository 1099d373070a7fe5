package apps

import (
	. "github.com/onsi/ginkgo/v2"
)

// Each way has a rack of its own. A program that fails leaves the others to run.
var _ = Describe("unmodified RDMA programs", func() {
	for i := range ways {
		w := &ways[i]
		Describe(w.name, Ordered, ContinueOnFailure, func() {
			var s *stage
			BeforeAll(func() { s = &stage{Rack: w.set()} })

			for j := range apps {
				a := &apps[j]
				if a.skips(w) != "" || !whole && (a.long || w.few != nil && !w.few.MatchString(a.name)) {
					continue
				}
				It(a.name, func() {
					at := w.on(s.Rack, a)
					lost, moved := at.lost(), at.moved()
					DeferCleanup(func() { note(a, w, outcome(CurrentSpecReport(), w, at.lost()-lost, at.moved()-moved)) })
					a.by.run(at)
				})
			}
		})
	}
})
