package simrack

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/record"
	"github.com/rdmalab/rdmalab/topo/sim"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// newSwitch makes a switch with the program of the rack file and empty tables. What it must remember of its former life
// is in the rack's record.
func (r *Rack) newSwitch() (sim.Node, error) {
	program, err := r.newProgram()
	if err != nil {
		return nil, err
	}
	p, err := pipeline.New(pipeline.Config{Ports: max(1, len(r.Spec.Hosts)), Program: program, Self: apps.Self(r.Spec)})
	if err != nil {
		return nil, err
	}
	r.pipe, r.box = p, program
	return r.wrap(spec.SwitchName, p), nil
}

// newProgram makes the switch's program.
func (r *Rack) newProgram() (pipeline.Program, error) {
	r.lives++
	if r.opt.Program != nil {
		return r.opt.Program(r.Spec)
	}
	cfg := apps.Config{Rand: r.rand(laneSwitch, r.lives)}
	if r.Spec.Switch.Program == spec.ProgramSwordBox {
		if r.memory == nil {
			r.memory = make([]byte, record.Size)
		}
		rec, err := record.Open(r.memory)
		if err != nil {
			return nil, err
		}
		cfg.Record = rec
	}
	return apps.New(r.Spec, cfg)
}

// Program is the switch's program.
func (r *Rack) Program() pipeline.Program { return r.box }

// Switch is the pipeline.
func (r *Rack) Switch() *pipeline.Switch { return r.pipe }

// CrashSwitch stops the switch: frames to it and in it are lost. Only its record survives.
func (r *Rack) CrashSwitch() { r.net.SetUp(r.sw, false) }

// RestartSwitch starts the switch with empty tables and the record of its former life.
func (r *Rack) RestartSwitch() error {
	sw, err := r.newSwitch()
	if err == nil {
		r.net.Replace(r.sw, sw)
	}
	return err
}

// StepSwitch calls f as a step of the switch, as an operator's command is: f may append frames to be sent.
func (r *Rack) StepSwitch(f func(c *pipeline.Ctx)) {
	now, out := r.net.Begin(r.sw)
	r.pipe.Step(now, out, f)
	r.net.End(r.sw)
}

// resolve is every NIC's neighbour table.
func (r *Rack) resolve(a addr) (wire.MAC, bool) { return r.Spec.Neighbour(a) }
