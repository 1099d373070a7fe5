package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/pprof/profile"
)

// guided is work whose profiles guide the compiler (profile-guided optimization).
type guided struct {
	rack string // name of one of racks
	args []string
}

// Each work of guides runs for guideRun, and its daemons are profiled for guideFor of that time,
// after guideDelay, in which it begins.
const (
	guideRun   = 7 * time.Second
	guideFor   = 5 * time.Second
	guideDelay = time.Second
)

// guides is the work: the paths that `make bench-rack` measures.
var guides = []guided{
	{"compact", rate("write_bw", "--size", "8")},
	{"compact", rate("send_bw", "--size", "8")},
	{"compact", rate("read_lat", "--size", "8")},
	{"compact-track", rate("write_bw", "--size", "8")},
	{"compact-move", rate("write_bw", "--size", "8")},
	{"compact-move", rate("atomic_bw", "--type", "cas")},
	{"default", rate("write_bw", "--size", "8")},
	{"default", rate("read_bw", "--size", "64KiB")},
	{"compact-clover", []string{"run", "ycsb", "--store", "clover", "--workload", "a", "--clients", "64", "--duration", guideRun.String(), "-q"}},
	{"compact-sherman", []string{"run", "ycsb", "--store", "sherman", "--workload", "a", "--clients", "64", "--duration", guideRun.String(), "-q"}},
}

func rate(test string, flags ...string) []string {
	return append([]string{"perf", test, "--from", "cn0", "--to", "ms0", "-q", "--duration", fmt.Sprint(guideRun.Seconds())}, flags...)
}

// guide profiles the daemons at the work of guides, and writes all profiles as one to file.
func (b bench) guide(ctx context.Context, file string) error {
	dir, err := os.MkdirTemp("", "benchrack")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for i, g := range guides {
		fmt.Fprintf(os.Stderr, "%d of %d: %s: %v\n", i+1, len(guides), g.rack, g.args)
		at := slices.IndexFunc(racks, func(r rack) bool { return r.name == g.rack })
		if at < 0 {
			return fmt.Errorf("there is no rack %q", g.rack)
		}
		err := b.on(ctx, dir, racks[at], func() error { return b.profiled(ctx, filepath.Join(dir, fmt.Sprint(i)), g.args) })
		if err != nil {
			return err
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.pprof"))
	if err != nil {
		return err
	}
	var all []*profile.Profile
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		p, err := profile.ParseData(data)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, p)
	}
	merged, err := profile.Merge(all)
	if err != nil {
		return err
	}
	anonymous(merged)
	var out bytes.Buffer
	if err := merged.Write(&out); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// anonymous takes out of a profile what is of the machine on which it was made, and not of the program.
func anonymous(p *profile.Profile) {
	p.TimeNanos, p.DurationNanos = 0, 0
	for _, m := range p.Mapping {
		m.File, m.BuildID = "", ""
	}
}

// profiled runs a command of rdmalab and profiles the daemons meanwhile. The profiles go to dir.
func (b bench) profiled(ctx context.Context, dir string, args []string) error {
	ran := make(chan error, 1)
	go func() {
		_, err := b.rdmalab(ctx, args...)
		ran <- err
	}()
	select {
	case <-time.After(guideDelay):
	case <-ctx.Done():
	}
	_, err := b.rdmalab(ctx, "profile", "--for", guideFor.String(), "--dir", dir)
	if rerr := <-ran; rerr != nil {
		return rerr
	}
	return err
}
