// A board's top, verilated, with a serial line at its pins: bytes in, bytes out.

#include <cstdint>
#include <memory>

#include "Vweft_board.h"
#include "line.h"  // kDivisor, kRxInverted, kTxInverted, kResetPressed, names of pins, SDRAM: written by simulated.py
#include "sdram_model.h"

namespace {

constexpr uint64_t kBits = 10;  // of a byte on the line: a start bit, eight of data, a stop bit

struct Board {
    VerilatedContext context;
    std::unique_ptr<Vweft_board> top{new Vweft_board(&context)};
    uint64_t cycle = 0;
#ifdef SDRAM
    SdramModel sdram{SdramFigures SDRAM};
    std::string error;
#endif
    // The host's end of the line: what is being sent, and since when; what is being received, and since when.
    unsigned sending = 0, received = 0;
    uint64_t sent_at = 0, received_at = 0;
    bool sends = false, receives = false;
    bool last_tx = true;

    bool rx_level() const { return !sends || (sending >> ((cycle - sent_at) / kDivisor) & 1); }

    void clock() {
        top->RX_PIN = rx_level() != kRxInverted;
        middle();
        top->crystal = 1;
        top->eval();
        ++cycle;
    }

#ifdef SDRAM
    // The middle of a cycle, where the chip's clock rises.
    void middle() {
        const bool low = !top->sdram_clock;
        const unsigned command = unsigned(top->sdram_ras_n << 2 | top->sdram_cas_n << 1 | top->sdram_we_n);
        const bool driven = top->sdram_data__en == 0xFFFF;
        const int given = sdram.edge(command, top->sdram_bank, top->sdram_address, top->sdram_mask, driven,
                                     top->sdram_data__out);
        if (!driven && top->sdram_data__en) error = "some of the SDRAM's data pins are driven";
        if (!top->sdram_clock_enable || top->sdram_select_n) error = "the SDRAM is not selected";
        top->sdram_data = uint16_t(given >= 0 ? given : 0xDEAD);
        top->crystal = 0;
        top->eval();
        if (!low || !top->sdram_clock) error = "the SDRAM's clock does not rise in the middle of a cycle";
        if (error.empty() && !sdram.error().empty()) error = "SDRAM: " + sdram.error();
    }
#else
    void middle() {
        top->crystal = 0;
        top->eval();
    }
#endif
};

}  // namespace

extern "C" {

void* board_new() {
    auto* board = new Board;
    board->top->reset = !kResetPressed;
    board->top->crystal = 1;
    board->top->eval();
    return board;
}

void board_delete(void* board) { delete static_cast<Board*>(board); }

// Presses or lets go of the reset button.
void board_reset(void* handle, uint32_t pressed) {
    static_cast<Board*>(handle)->top->reset = bool(pressed) == kResetPressed;
}

// What the chips of the board do not allow, or "".
const char* board_error(void* handle) {
#ifdef SDRAM
    return static_cast<Board*>(handle)->error.c_str();
#else
    return handle ? "" : nullptr;
#endif
}

uint32_t board_leds(void* handle) { return LEDS_PIN(*static_cast<Board*>(handle)->top); }

// Lets at most `cycles` pass, with `count` bytes for the board of which `*taken` were sent, and `room` places for those
// that it sends; `*given` are filled in. It ends early when some have come, and then nothing for two bytes' time.
void board_run(void* handle, uint64_t cycles, const uint8_t* bytes, uint64_t count, uint64_t* taken, uint8_t* answers,
               uint64_t room, uint64_t* given) {
    Board& board = *static_cast<Board*>(handle);
    *taken = *given = 0;
    uint64_t quiet = ~uint64_t(0);  // from then on nothing more has come
    for (const uint64_t end = board.cycle + cycles; board.cycle < end && *given < room;) {
        if (!board.receives && board.cycle >= quiet) break;
        if (board.sends && board.cycle - board.sent_at >= kBits * kDivisor) board.sends = false;
        if (!board.sends && *taken < count) {
            board.sending = 0x200u | unsigned(bytes[(*taken)++]) << 1;
            board.sent_at = board.cycle;
            board.sends = true;
        }
        board.clock();
        const bool tx = bool(board.top->TX_PIN) != kTxInverted;
        if (!board.receives && board.last_tx && !tx) {
            board.receives = true;
            board.received = 0;
            board.received_at = board.cycle;
        } else if (board.receives) {
            const uint64_t since = board.cycle - board.received_at;
            if (since % kDivisor == kDivisor / 2) {
                const uint64_t bit = since / kDivisor;
                if (bit >= 1 && bit <= 8) board.received |= unsigned(tx) << (bit - 1);
                if (bit == 9) {
                    board.receives = false;
                    if (tx) answers[(*given)++] = uint8_t(board.received);
                    quiet = board.cycle + 2 * kBits * kDivisor;
                }
            }
        }
        board.last_tx = tx;
    }
}

}
