package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/ladder"
)

// runLadder draws the packets of one file that config selects. A broken file is drawn as far as it
// can be read.
func runLadder(cmd *cobra.Command, config dump.Config, files []string) error {
	switch {
	case len(files) > 1:
		return badUse("--ladder draws one file: give one of the %d", len(files))
	case config.JSON:
		return badUse("--ladder is text: leave out -o json")
	case config.TimeOfDay || config.Filter.Other:
		return badUse("--ladder has neither times of day nor other frames: leave out --time-of-day and --all")
	}
	model := ladder.New()
	config.Each = model.Add
	d, err := dump.New(cmd.OutOrStdout(), config)
	if err != nil {
		return err
	}
	broken := dumpFile(cmd, d, files[0])
	if err := errors.Join(model.WriteText(cmd.OutOrStdout()), broken); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(cmd.ErrOrStderr(), &d.Stats); err != nil {
		return err
	}
	if d.Stats.Bad() > 0 {
		return exitCode(1)
	}
	return nil
}
