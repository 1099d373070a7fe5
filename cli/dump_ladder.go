package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/ladder"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
)

// runLadder draws the packets of one file that config selects, as text or into the file `to`. A broken
// file is drawn as far as it can be read.
func runLadder(cmd *cobra.Command, config dump.Config, files []string, to string) error {
	switch {
	case len(files) > 1:
		return badUse("--ladder draws one file: give one of the %d", len(files))
	case config.JSON:
		return badUse("--ladder is text: leave out -o json")
	case config.TimeOfDay || config.Filter.Other:
		return badUse("--ladder has neither times of day nor other frames: leave out --time-of-day and --all")
	}
	if err := ladderFile(to); err != nil {
		return err
	}
	model := ladder.New()
	config.Each = model.Add
	d, err := dump.New(cmd.OutOrStdout(), config)
	if err != nil {
		return err
	}
	broken := dumpFile(cmd, d, files[0])
	if broken != nil && d.Stats.Shown == 0 {
		return broken
	}
	if err := errors.Join(writeLadder(cmd.OutOrStdout(), model, to, files[0]), broken); err != nil {
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

// ladderFile reports, as an error, that a ladder cannot be written into the file `to`.
func ladderFile(to string) error {
	switch strings.ToLower(filepath.Ext(to)) {
	case ".svg", ".html", ".htm", ".txt":
		return nil
	}
	if to == "" || to == "-" {
		return nil
	}
	return badUse("-w %s: a ladder is a picture (.svg), a page (.html) or text (.txt)", to)
}

// writeLadder writes the ladder into the file `to`, in the format that its name says, or as text to out if `to` is "" or "-".
// source names the capture.
func writeLadder(out io.Writer, m *ladder.Model, to, source string) (err error) {
	if to == "" || to == "-" {
		return m.WriteText(out)
	}
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	switch strings.ToLower(filepath.Ext(to)) {
	case ".svg":
		return m.WriteSVG(file)
	case ".txt":
		return m.WriteText(file)
	}
	title := "Ladder"
	if source != "-" {
		title += " of " + filepath.Base(source)
	}
	return m.WriteHTML(file, title)
}

// draw draws a ladder of the capture from the switch's stream, when it ends, or the command is interrupted.
func (f *captureFlags) draw(cmd *cobra.Command, stream io.Reader) error {
	model := ladder.New()
	d, err := dump.New(io.Discard, dump.Config{Each: model.Add})
	if err != nil {
		return err
	}
	from, to := io.Pipe()
	go func() { // ends with the stream, or when Dump has closed the pipe
		_, err := pcapng.Copy(to, stream, f.count)
		if cmd.Context().Err() != nil {
			err = nil // interrupted, which is the usual end
		}
		to.CloseWithError(err) // never fails
	}()
	broken := d.Dump("", from)
	from.Close() // never fails
	if broken != nil {
		broken = fmt.Errorf("the capture broke off after %d packets: %w; did the switch stop? See `rdmalab status`", d.Stats.RoCE, broken)
	}
	if err := errors.Join(writeLadder(cmd.OutOrStdout(), model, f.file, "-"), broken); err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.ErrOrStderr(), &d.Stats)
	return err
}
