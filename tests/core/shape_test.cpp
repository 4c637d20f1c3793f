#include "tests/support/test.h"

namespace vox {
namespace {

constexpr int64_t big = INT64_MAX;

TEST(Shape, HoldsAndPrintsSizes) {
  const Shape s{2, 3, 4};
  EXPECT_EQ(s.rank(), 3);
  EXPECT_EQ(s[0], 2);
  EXPECT_EQ(s.back(), 4);
  EXPECT_EQ(s, Shape(Ints{2, 3, 4}));
  EXPECT_NE(s, (Shape{2, 3}));
  EXPECT_NE(s, (Shape{2, 3, 5}));
  EXPECT_TRUE(Shape().empty());
  EXPECT_EQ(Shape::filled(3, 7), (Shape{7, 7, 7}));
  EXPECT_EQ(str(Shape{}), "()");
  EXPECT_EQ(str(Shape{5}), "(5,)");
  EXPECT_EQ(str(Shape{2, 3}), "(2,3)");
}

TEST(Shape, InsertsAndErases) {
  Shape s{2, 4};
  s.insert(1, 3);
  EXPECT_EQ(s, (Shape{2, 3, 4}));
  s.insert(3, 5);
  EXPECT_EQ(s, (Shape{2, 3, 4, 5}));
  s.erase(0);
  EXPECT_EQ(s, (Shape{3, 4, 5}));
  s.erase(2);
  EXPECT_EQ(s, (Shape{3, 4}));
}

TEST(Shape, RefusesTheNinthDimension) {
  EXPECT_NO_THROW((Shape{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_THROW((Shape{1, 2, 3, 4, 5, 6, 7, 8, 9}), ShapeError);
  Shape pair{1, 2}, none;
  for (const int64_t i : {-1, 2}) EXPECT_THROW(pair.erase(i), ShapeError);
  for (const int64_t i : {-1, 3}) EXPECT_THROW(pair.insert(i, 7), ShapeError);
  EXPECT_EQ(pair, (Shape{1, 2}));
  EXPECT_ERRORS(ShapeError, none.erase(0), none.back(), Shape(Ints(9, 1)));
}

TEST(Shape, CheckedArithmetic) {
  EXPECT_EQ(checked_mul("f", big, 1), big);
  EXPECT_EQ(checked_mul("f", big, 0), 0);
  EXPECT_THROW(checked_mul("f", big / 2 + 1, 2), ShapeError);
  EXPECT_EQ(checked_add("f", big, 0), big);
  EXPECT_THROW(checked_add("f", big, 1), ShapeError);
  const std::string message =
      message_of<ShapeError>([] { checked_mul("reshape", int64_t{1} << 40, 1 << 30); });
  EXPECT_EQ(message, "reshape: 1099511627776 * 1073741824 overflows 64 bits");
  EXPECT_EQ(checked_numel("f", {}), 1);
  EXPECT_EQ(checked_numel("f", {2, 3, 4}), 24);
  EXPECT_EQ(checked_numel("f", {2, 0, 4}), 0);
  EXPECT_EQ(checked_numel("f", {big}), big);
  EXPECT_ERRORS(ShapeError, checked_numel("f", {2, -1}), checked_numel("f", {0, -1}),
                checked_numel("f", {big, 2}), checked_numel("f", {int64_t{1} << 32, int64_t{1} << 32}));
  EXPECT_THROW(checked_numel("f", {0, big, 2}), ShapeError) << "even where another size is 0";
  EXPECT_THROW(checked_numel("f", {big, 2, 0}), ShapeError);
  EXPECT_EQ(contiguous_strides({}), Shape{});
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({2, 0, 4}), (Shape{4, 4, 1}));
}

TEST(Shape, NormalizesDimensions) {
  EXPECT_EQ(normalize_dim("f", 0, 3), 0);
  EXPECT_EQ(normalize_dim("f", -1, 3), 2);
  EXPECT_EQ(normalize_dim("f", -3, 3), 0);
  EXPECT_ERRORS(ShapeError, normalize_dim("f", 3, 3), normalize_dim("f", -4, 3), normalize_dim("f", 0, 0),
                normalize_dim("f", INT64_MIN, 3));
  EXPECT_MESSAGE(ShapeError, normalize_dim("sum", 5, 2),
                 "sum: dim 5 is out of range for rank 2; allowed are -2 to 1");
  EXPECT_MESSAGE(ShapeError, normalize_dim("sum", 0, 0),
                 "sum: dim 0 is out of range for rank 0; a tensor of rank 0 has no dimensions");
}

TEST(Shape, Broadcasts) {
  EXPECT_EQ(broadcast_shapes("f", {2, 3}, {2, 3}), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes("f", {2, 3}, {}), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes("f", {3}, {4, 2, 1}), (Shape{4, 2, 3}));
  EXPECT_EQ(broadcast_shapes("f", {5, 1, 7}, {6, 1}), (Shape{5, 6, 7}));
  EXPECT_EQ(broadcast_shapes("f", {1}, {0}), Shape{0});
  EXPECT_EQ(broadcast_shapes("f", {2, 0}, {1, 1}), (Shape{2, 0}));
  EXPECT_ERRORS(ShapeError, broadcast_shapes("f", {0}, {2}), broadcast_shapes("f", {2, 3}, {3, 2}));
  EXPECT_MESSAGE(ShapeError, broadcast_shapes("add", {2, 3}, {4, 3}),
                 "add: shapes (2,3) and (4,3) do not broadcast: sizes 2 and 4 differ and neither is 1");
}

TEST(Check, ThrowsItsTypeAndIsAVoxError) {
  EXPECT_NO_THROW(check<ShapeError>(true, "never formatted"));
  EXPECT_THROW(check<ValueError>(false, "f: got ", 3), ValueError);
  EXPECT_THROW(check<DeviceError>(false, "f"), Error);
  EXPECT_MESSAGE(Error, check<IoError>(false, "f: got ", 3, ", allowed is ", true),
                 "f: got 3, allowed is true");
}

}  // namespace
}  // namespace vox
