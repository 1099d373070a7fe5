package machines

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/console"
)

const root = "../.."

var _ = Describe("the console blocks of pages about several machines", func() {
	pages, err := console.Pages(root)
	if err != nil {
		panic(err) // there is no tree without pages
	}
	for _, p := range pages {
		if p.Kind != console.Machines {
			continue
		}
		It(p.Path, func(ctx context.Context) {
			l := newLab(3)
			bin := l.dir + "/typed"
			Expect(os.Mkdir(bin, 0o755)).To(Succeed())
			write(bin+"/rdmalab", fmt.Sprintf("#!/bin/sh\nexec nsenter -t %d -m -n -p -u -i --wd=\"$PWD\" env PATH=%s/bin:$PATH RDMALAB_RACK=machines rdmalab \"$@\"\n", l.client.pid, l.client.dir), 0o755)
			dir, err := filepath.Abs(root)
			Expect(err).NotTo(HaveOccurred())
			_, wrong, err := p.Check(ctx, console.Shell{Dir: dir, Env: []string{"PATH=" + bin + ":" + os.Getenv("PATH")}})
			Expect(err).NotTo(HaveOccurred())
			Expect(wrong).To(BeEmpty(), "%v", wrong)
			for _, m := range l.machines {
				Expect(m.left()).To(BeEmpty(), m.name)
			}
		})
	}
})
