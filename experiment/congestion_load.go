package experiment

import (
	"context"
	"fmt"
	"math"
)

// seededLoad is a load of which one seed is a run.
type seededLoad interface {
	label() string
	effort() float64
	once(ctx context.Context, p Platform, seed uint64) (outcome, error)
}

// repeated is a load of which each of the seeds 1 to seeds is run. Numbers of a figure are the means.
type repeated struct {
	seededLoad
	seeds int
}

func (l repeated) effort() float64 { return float64(l.seeds) * l.seededLoad.effort() }

func (l repeated) measure(ctx context.Context, p Platform) (out outcome, err error) {
	for seed := range l.seeds {
		o, err := l.once(ctx, p, uint64(seed)+1)
		switch {
		case err != nil:
			return out, fmt.Errorf("seed %d: %w", seed+1, err)
		case seed == 0:
			out = o
		default:
			out.seeds = append(out.seeds, o)
		}
	}
	out.pool()
	if out.scene != nil { // it is the mean that must be steady
		mean, _, _ := out.mean(func(o *outcome) float64 { return o.scene.Unsteady })
		out.scene.Unsteady = mean
		for i := range out.seeds {
			out.seeds[i].scene.Unsteady = mean
		}
	}
	return out, nil
}

// staged is a load that is a Scene.
type staged interface {
	label() string
	effort() float64
	scene(seed uint64) Scene
}

// played runs the Scene of a load.
type played struct{ staged }

// play makes the load of a Scene.
func play(l staged) repeated { return repeated{played{l}, 1} }

func (l played) once(ctx context.Context, p Platform, seed uint64) (outcome, error) {
	s := l.scene(seed)
	s.Seed = seed
	res, err := p.Scene(ctx, s)
	return outcome{scene: &res}, err
}

// repeat makes the loads of figures run so many seeds.
func repeat(list []figure, seeds int) {
	for i := range list {
		for k := range list[i].cells {
			if l, ok := list[i].cells[k].load.(repeated); ok {
				l.seeds = seeds
				list[i].cells[k].load = l
			}
		}
	}
}

// mean returns the mean of a number over the seeds of an outcome, and its least and largest value. It is NaN if one
// seed has no such number.
func (o *outcome) mean(value func(*outcome) float64) (mean, low, high float64) {
	mean = value(o)
	low, high = mean, mean
	for i := range o.seeds {
		v := value(&o.seeds[i])
		mean, low, high = mean+v, min(low, v), max(high, v)
	}
	return mean / float64(1+len(o.seeds)), low, high
}

// spread says how far the seeds of a figure's numbers are apart: a line for each series.
func (f *figure) spread(done map[load]outcome) (list []string) {
	of := map[string]int{}
	for i := range f.cells {
		c := &f.cells[i]
		o, ok := done[c.load]
		if !ok || len(o.seeds) == 0 {
			continue
		}
		name := c.series
		if c.panel != "" {
			name = c.panel + ", " + name
		}
		at, known := of[name]
		if !known {
			at = len(list)
			of[name] = at
			list = append(list, fmt.Sprintf("%d seeds: %s:", 1+len(o.seeds), name))
		}
		if _, low, high := o.mean(c.value); math.IsNaN(low) || math.IsNaN(high) {
			list[at] += fmt.Sprintf(" %s -;", c.x)
		} else {
			list[at] += fmt.Sprintf(" %s %.3g to %.3g;", c.x, low, high)
		}
	}
	return list
}

// pool gives the first run of a store the halves of all seeds: it is their sum that must be steady.
func (o *outcome) pool() {
	if o.store == nil {
		return
	}
	for i := range o.seeds {
		h := &o.seeds[i].store.Halves
		o.store.Halves[0] += h[0]
		o.store.Halves[1] += h[1]
		*h = [2]uint64{}
	}
}
